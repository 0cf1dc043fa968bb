import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.zip.GZIPInputStream;

/** Reads a record twice: java Read.java COLLECTION ID. See ../README.md. */
public final class Read {
  /** A record as JSON, and its entity tag. */
  record Found(String json, String etag) {}

  /** An answer that is no record. The title says what is wrong. */
  static final class Problem extends Exception {
    private static final Pattern TITLE = Pattern.compile("\"title\"\\s*:\\s*\"([^\"]*)\"");

    Problem(int status, String body) {
      super(status + ": " + title(body));
    }

    private static String title(String body) {
      Matcher title = TITLE.matcher(body);
      return title.find() ? title.group(1) : "no problem document";
    }
  }

  /** Reads records, and remembers the newest position that it has seen. One thread uses it. */
  static final class Client {
    private final HttpClient http =
        HttpClient.newBuilder()
            .version(HttpClient.Version.HTTP_1_1)
            .connectTimeout(Duration.ofSeconds(2))
            .build();
    private final String url;
    private final Optional<String> key;
    private String position;

    Client(String url, Optional<String> key) {
      this.url = url;
      this.key = key;
    }

    /** Returns a record; nothing if {@code etag} is still its own. */
    Optional<Found> get(String collection, String id, String etag)
        throws IOException, InterruptedException, Problem {
      String path = URLEncoder.encode(id, StandardCharsets.UTF_8).replace("+", "%20");
      HttpRequest.Builder request =
          HttpRequest.newBuilder(URI.create(url + "/" + collection + "/" + path))
              .timeout(Duration.ofSeconds(10))
              .header("Accept-Encoding", "gzip");
      key.ifPresent(secret -> request.header("Authorization", "Bearer " + secret));
      if (position != null) {
        request.header("Hotrow-Min-Position", position);
      }
      if (etag != null) {
        request.header("If-None-Match", etag);
      }
      HttpResponse<byte[]> answer = http.send(request.build(), BodyHandlers.ofByteArray());
      position = answer.headers().firstValue("Hotrow-Position").orElse(position);
      return switch (answer.statusCode()) {
        case 200 -> Optional.of(new Found(text(answer), answer.headers().firstValue("ETag").get()));
        case 304 -> Optional.empty();
        default -> throw new Problem(answer.statusCode(), text(answer));
      };
    }

    private static String text(HttpResponse<byte[]> answer) throws IOException {
      byte[] body = answer.body();
      if (answer.headers().firstValue("Content-Encoding").filter("gzip"::equals).isPresent()) {
        body = new GZIPInputStream(new ByteArrayInputStream(body)).readAllBytes();
      }
      return new String(body, StandardCharsets.UTF_8);
    }
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 2) {
      System.err.println("usage: java Read.java COLLECTION ID");
      System.exit(2);
    }
    String url = System.getenv().getOrDefault("HOTROW_URL", "http://127.0.0.1:8080");
    String key = System.getenv("HOTROW_KEY");
    Client client = new Client(url, Optional.ofNullable(key).filter(secret -> !secret.isEmpty()));
    try {
      Found first = client.get(arguments[0], arguments[1], null).orElseThrow();
      System.out.println(first.json());
      System.out.println("position " + client.position);
      Optional<Found> again = client.get(arguments[0], arguments[1], first.etag());
      System.out.println(again.map(Found::json).orElse("unchanged"));
    } catch (Problem problem) {
      System.err.println(problem.getMessage());
      System.exit(1);
    }
  }
}
