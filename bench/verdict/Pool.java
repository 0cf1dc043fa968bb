import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

/** A fixed pool of threads: {@code java Pool.java PORT THREADS sleep|cpu MS}. */
public class Pool {
    public static void main(String[] words) throws Exception {
        int port = Integer.parseInt(words[0]);
        var address = new InetSocketAddress(InetAddress.getLoopbackAddress(), port);
        boolean sleeps = words[2].equals("sleep");
        long ms = Long.parseLong(words[3]);
        HttpServer server = HttpServer.create(address, 0);
        server.setExecutor(Executors.newFixedThreadPool(Integer.parseInt(words[1])));
        server.createContext("/", exchange -> {
            if (sleeps) {
                try {
                    Thread.sleep(ms);
                } catch (InterruptedException stopped) {
                    Thread.currentThread().interrupt();
                }
            } else {
                long end = System.nanoTime() + ms * 1_000_000;
                while (System.nanoTime() < end) {
                    Thread.onSpinWait();
                }
            }
            exchange.sendResponseHeaders(200, 2);
            exchange.getResponseBody().write("ok".getBytes());
            exchange.close();
        });
        server.start();
    }
}
