import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.concurrent.Executors;

/**
 * A fixed pool of threads: {@code java Pool.java PORT THREADS sleep|cpu|allocate N}. N is the time
 * of a request in milliseconds, or its allocation in megabytes.
 */
public class Pool {
    public static void main(String[] words) throws Exception {
        int port = Integer.parseInt(words[0]);
        var address = new InetSocketAddress(InetAddress.getLoopbackAddress(), port);
        boolean sleeps = words[2].equals("sleep");
        boolean allocates = words[2].equals("allocate");
        long ms = Long.parseLong(words[3]);
        int blocks = Integer.parseInt(words[3]) * 1024;
        // Lives on, so that a collection has much to mark and move.
        Object[] kept = new Object[allocates ? 1_000_000 : 0];
        Arrays.setAll(kept, n -> new int[] {n});
        HttpServer server = HttpServer.create(address, 0);
        server.setExecutor(Executors.newFixedThreadPool(Integer.parseInt(words[1])));
        server.createContext("/", exchange -> {
            if (sleeps) {
                try {
                    Thread.sleep(ms);
                } catch (InterruptedException stopped) {
                    Thread.currentThread().interrupt();
                }
            } else if (allocates) {
                byte[][] garbage = new byte[blocks][];
                for (int n = 0; n < blocks; n++) {
                    garbage[n] = new byte[1008];
                    kept[(n * 997) % kept.length] = new int[] {n};
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
