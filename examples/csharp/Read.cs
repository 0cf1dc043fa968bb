// Reads a record twice, and several at once: dotnet run -- COLLECTION ID [ID ...].
// NOT RUN: no .NET toolchain was at hand. See ../README.md.

using System.Net;
using System.Net.Http.Headers;
using System.Net.Http.Json;
using System.Text.Json;

if (args.Length < 2)
{
    Console.Error.WriteLine("usage: dotnet run -- COLLECTION ID [ID ...]");
    return 2;
}
var url = Environment.GetEnvironmentVariable("HOTROW_URL") ?? "http://127.0.0.1:8080";
using var client = new HotrowClient(url, Environment.GetEnvironmentVariable("HOTROW_KEY"));
try
{
    if (args.Length > 2)
    {
        var found = await client.GetMany(args[0], args[1..]);
        foreach (var id in args[1..])
        {
            Console.WriteLine(found.TryGetValue(id, out var one) ? one.GetRawText() : "missing");
        }
        return 0;
    }
    var first = await client.Get(args[0], args[1]);
    Console.WriteLine(first!.Json);
    Console.WriteLine($"position {client.Position}");
    var again = await client.Get(args[0], args[1], first.Etag);
    Console.WriteLine(again?.Json ?? "unchanged");
    return 0;
}
catch (Problem problem)
{
    Console.Error.WriteLine(problem.Message);
    return 1;
}

/// <summary>A record as JSON, and its entity tag.</summary>
sealed record Found(string Json, EntityTagHeaderValue? Etag);

/// <summary>An answer that is no record. The title says what is wrong.</summary>
sealed class Problem(HttpStatusCode status, string title) : Exception($"{(int)status}: {title}");

/// <summary>Reads records, and remembers the newest position that it has seen.</summary>
/// <remarks>Make one for the whole process: its connections stay open between requests.</remarks>
sealed class HotrowClient : IDisposable
{
    const string MinPosition = "Hotrow-Min-Position";
    readonly HttpClient http;
    readonly string url;

    /// <summary>The position of the newest answer; send it to read no older record.</summary>
    public string? Position { get; private set; }

    public HotrowClient(string url, string? key)
    {
        this.url = url.TrimEnd('/');
        var handler = new SocketsHttpHandler
        {
            AutomaticDecompression = DecompressionMethods.GZip,
            ConnectTimeout = TimeSpan.FromSeconds(2),
            // Below limits.idle_timeout of the server, so that it is the client who closes.
            PooledConnectionIdleTimeout = TimeSpan.FromSeconds(30),
        };
        http = new HttpClient(handler) { Timeout = TimeSpan.FromSeconds(10) };
        if (!string.IsNullOrEmpty(key))
        {
            http.DefaultRequestHeaders.Authorization = new("Bearer", key);
        }
    }

    /// <summary>Returns a record; null if <paramref name="etag"/> is still its own.</summary>
    public async Task<Found?> Get(
        string collection, string id, EntityTagHeaderValue? etag = null)
    {
        var path = $"{url}/{collection}/{Uri.EscapeDataString(id)}";
        using var request = new HttpRequestMessage(HttpMethod.Get, path);
        if (etag is not null)
        {
            request.Headers.IfNoneMatch.Add(etag);
        }
        using var answer = await Send(request);
        if (answer.StatusCode == HttpStatusCode.NotModified)
        {
            return null;
        }
        return new Found(await answer.Content.ReadAsStringAsync(), answer.Headers.ETag);
    }

    /// <summary>Returns those of the records that exist, by id, with one request.</summary>
    public async Task<Dictionary<string, JsonElement>> GetMany(
        string collection, IEnumerable<string> ids)
    {
        using var request = new HttpRequestMessage(HttpMethod.Post, $"{url}/{collection}")
        {
            Content = JsonContent.Create(new { ids }),
        };
        using var answer = await Send(request);
        using var batch = JsonDocument.Parse(await answer.Content.ReadAsStringAsync());
        return batch.RootElement.GetProperty("items").EnumerateObject()
            .ToDictionary(item => item.Name, item => item.Value.Clone());
    }

    async Task<HttpResponseMessage> Send(HttpRequestMessage request)
    {
        if (Position is not null)
        {
            request.Headers.Add(MinPosition, Position);
        }
        var answer = await http.SendAsync(request);
        if (answer.Headers.TryGetValues("Hotrow-Position", out var positions))
        {
            Position = positions.First();
        }
        if (answer.IsSuccessStatusCode || answer.StatusCode == HttpStatusCode.NotModified)
        {
            return answer;
        }
        using (answer)
        {
            throw new Problem(answer.StatusCode, Title(await answer.Content.ReadAsStringAsync()));
        }
    }

    static string Title(string body)
    {
        try
        {
            using var problem = JsonDocument.Parse(body);
            return problem.RootElement.GetProperty("title").GetString() ?? "no title";
        }
        catch (Exception error) when (error is JsonException or KeyNotFoundException
            or InvalidOperationException)
        {
            return "no problem document";
        }
    }

    public void Dispose() => http.Dispose();
}
