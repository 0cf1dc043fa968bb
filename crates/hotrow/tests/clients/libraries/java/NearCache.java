import io.lettuce.core.TrackingArgs;
import io.lettuce.core.support.caching.CacheAccessor;
import io.lettuce.core.support.caching.ClientSideCaching;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.csc.CacheConfig;

/** Prints the records of the keys that it is given, from copies of Jedis or of Lettuce. */
public final class NearCache {
  public static void main(String[] arguments) throws Exception {
    String address = System.getenv("HOTROW_REDIS_ADDRESS");
    Function<String, String> get =
        arguments[0].equals("jedis") ? jedis(address) : lettuce(address);
    BufferedReader keys = new BufferedReader(new InputStreamReader(System.in));
    for (String key = keys.readLine(); key != null; key = keys.readLine()) {
      String record = get.apply(key);
      System.out.println(record == null ? "missing" : record);
    }
    System.exit(0);
  }

  private static Function<String, String> jedis(String address) {
    var config = DefaultJedisClientConfig.builder().protocol(RedisProtocol.RESP3).build();
    var cache = CacheConfig.builder().maxSize(1000).build();
    return new UnifiedJedis(HostAndPort.from(address), config, cache)::get;
  }

  private static Function<String, String> lettuce(String address) {
    var connection = io.lettuce.core.RedisClient.create("redis://" + address).connect();
    var copies = new ConcurrentHashMap<String, String>();
    var cache = ClientSideCaching.enable(
        CacheAccessor.forMap(copies), connection, TrackingArgs.Builder.enabled());
    return cache::get;
  }
}
