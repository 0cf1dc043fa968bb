import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionException;
import io.lettuce.core.RedisURI;
import java.util.List;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.exceptions.JedisException;

/** What Jedis and Lettuce get from Hotrow over its Redis protocol, a line for each question. */
public final class Answers {
  private static final String ADDRESS = System.getenv("HOTROW_REDIS_ADDRESS");
  private static final String KEY = System.getenv("HOTROW_KEY");

  public static void main(String[] arguments) {
    if (arguments[0].equals("jedis")) {
      jedis(RedisProtocol.RESP3);
      jedis(RedisProtocol.RESP2);
      try (UnifiedJedis stranger = connect("hrk_wrong", RedisProtocol.RESP3)) {
        stranger.get("products:1");
      } catch (JedisException refused) {
        System.out.println("auth " + cause(refused).getMessage());
      }
    } else {
      lettuce();
    }
  }

  private static UnifiedJedis connect(String key, RedisProtocol protocol) {
    return new UnifiedJedis(
        HostAndPort.from(ADDRESS),
        DefaultJedisClientConfig.builder().password(key).protocol(protocol).build());
  }

  private static void jedis(RedisProtocol protocol) {
    try (UnifiedJedis client = connect(KEY, protocol)) {
      System.out.println("get " + client.get("products:1"));
      System.out.println("missing " + client.get("products:9"));
      List<String> records = client.mget("products:1", "products:9", "products:2");
      System.out.println("mget " + records.get(0) + " " + (records.get(1) == null) + " "
          + records.get(2));
      System.out.println("exists " + client.exists("products:1", "products:9"));
      try {
        client.set("products:1", "x");
      } catch (JedisException refused) {
        System.out.println("wrong " + refused.getMessage());
      }
    }
  }

  private static io.lettuce.core.RedisClient client(String key) {
    RedisURI uri = RedisURI.create("redis://" + ADDRESS);
    uri.setCredentialsProvider(
        () -> reactor.core.publisher.Mono.just(
            io.lettuce.core.RedisCredentials.just(null, key)));
    io.lettuce.core.RedisClient client = io.lettuce.core.RedisClient.create(uri);
    client.setOptions(ClientOptions.builder().autoReconnect(false).build());
    return client;
  }

  private static void lettuce() {
    io.lettuce.core.RedisClient client = client(KEY);
    var commands = client.connect().sync();
    System.out.println("get " + commands.get("products:1"));
    System.out.println("missing " + commands.get("products:9"));
    var records = commands.mget("products:1", "products:9", "products:2");
    System.out.println("mget " + records.get(0).getValue() + " " + records.get(1).isEmpty() + " "
        + records.get(2).getValue());
    System.out.println("exists " + commands.exists("products:1", "products:9"));
    try {
      commands.set("products:1", "x");
    } catch (RedisCommandExecutionException refused) {
      System.out.println("wrong " + refused.getMessage());
    }
    client.shutdown();
    io.lettuce.core.RedisClient stranger = client("hrk_wrong");
    try {
      stranger.connect();
    } catch (RedisConnectionException refused) {
      System.out.println("auth " + cause(refused).getMessage());
    }
    stranger.shutdown();
  }

  private static Throwable cause(Throwable error) {
    return error.getCause() == null ? error : cause(error.getCause());
  }
}
