import de.bwaldvogel.mongo.MongoBackend;
import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import de.bwaldvogel.mongo.bson.BsonTimestamp;
import de.bwaldvogel.mongo.bson.Document;
import de.bwaldvogel.mongo.wire.message.MongoMessage;
import java.time.Instant;
import java.util.List;

/**
 * Starts a mongo-java-server on a free port, prints its address, and ends with its standard input. It knows change streams but
 * says that it is no replica set, has no sessions and tells no times; here it claims all three, for without them nobody may ask
 * it for a stream. It has streams of one collection only and their
 * events do not say which, so that a stream of the database becomes one of "products", with all that happens there.
 */
public final class Launcher {
    private static final String SET = "rs0";
    private static final String COLLECTION = "products";

    private static final class Backend extends MemoryBackend {
        volatile String host;

        @Override
        public Document handleMessage(MongoMessage message) {
            Document query = message.getDocument();
            String command = query.keySet().iterator().next();
            boolean hello = command.equalsIgnoreCase("hello") || command.equalsIgnoreCase("isMaster");
            if (command.equals("aggregate") && query.get("aggregate") instanceof Number) {
                query.put("aggregate", COLLECTION);
                query.put("pipeline", ((List<?>) query.get("pipeline")).subList(0, 1));
            }
            // It knows the older name only.
            Document reply = hello ? handleCommand(message.getChannel(), message.getDatabaseName(), "isMaster", query)
                    : super.handleMessage(message);
            if (hello) {
                reply.put("isWritablePrimary", true);
                reply.put("setName", SET);
                reply.put("setVersion", 1);
                reply.put("logicalSessionTimeoutMinutes", 30);
                reply.put("hosts", List.of(host));
                reply.put("me", host);
                reply.put("primary", host);
            }
            if (command.equals("getMore") && reply.get("cursor") instanceof Document cursor) {
                for (Object event : (List<?>) cursor.get("nextBatch")) {
                    Document ns = new Document("db", message.getDatabaseName());
                    ((Document) event).put("ns", ns.append("coll", COLLECTION));
                }
            }
            // Its own times are of the second, with a number from 1 on.
            reply.put("operationTime", new BsonTimestamp(Instant.now(), 0));
            return reply;
        }
    }

    private static final class Version implements MongoVersion {
        @Override
        public List<Integer> getVersionArray() {
            return List.of(4, 4, 0);
        }

        @Override
        public int getWireVersion() {
            return 9;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Backend backend = new Backend();
        MongoBackend versioned = backend.version(new Version());
        MongoServer server = new MongoServer(versioned);
        server.enableOplog();
        server.bind("127.0.0.1", 0);
        backend.host = "127.0.0.1:" + server.getLocalAddress().getPort();
        System.out.println("listening on " + backend.host);
        System.out.flush();
        while (System.in.read() >= 0) {
            // Until whoever started it is gone.
        }
        server.shutdownNow();
    }
}
