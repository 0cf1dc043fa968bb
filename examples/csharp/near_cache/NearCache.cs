// Keeps records in its own memory, which Hotrow keeps fresh by CLIENT TRACKING. Reads keys from
// standard input, one a line, and prints their records.
// NOT RUN: no .NET toolchain was at hand. See ../../README.md.

using System.Collections.Concurrent;
using System.Net.Sockets;
using System.Text;

var address = Environment.GetEnvironmentVariable("HOTROW_REDIS_ADDRESS") ?? "127.0.0.1:6379";
using var cache = await NearCache.Connect(
    address, Environment.GetEnvironmentVariable("HOTROW_KEY"));
while (Console.ReadLine() is { } key)
{
    Console.WriteLine(await cache.Get(key) ?? "missing");
}

/// <summary>A connection of RESP3, and copies of what it has read.</summary>
/// <remarks>
/// StackExchange.Redis has no client-side caching, so that this speaks the protocol itself. Its one
/// reader applies replies and invalidations in the order in which they arrive.
/// </remarks>
sealed class NearCache : IDisposable
{
    static readonly TimeSpan PingEvery = TimeSpan.FromSeconds(1);
    readonly TcpClient tcp;
    readonly Stream stream;
    readonly ConcurrentDictionary<string, string?> copies = new();
    readonly ConcurrentQueue<(string? Key, TaskCompletionSource<object?> Done)> waiting = new();
    readonly SemaphoreSlim sending = new(1);
    /// <summary>Why the connection has ended; null while it is open.</summary>
    volatile Exception? ended;

    NearCache(TcpClient tcp)
    {
        this.tcp = tcp;
        stream = new BufferedStream(tcp.GetStream());
    }

    public static async Task<NearCache> Connect(string address, string? key)
    {
        var colon = address.LastIndexOf(':');
        var tcp = new TcpClient { NoDelay = true };
        await tcp.ConnectAsync(address[..colon], int.Parse(address[(colon + 1)..]));
        var cache = new NearCache(tcp);
        _ = Task.Run(cache.ReadReplies);
        // The API key or token is the password of the user "default".
        string[] hello = string.IsNullOrEmpty(key)
            ? ["HELLO", "3"] : ["HELLO", "3", "AUTH", "default", key];
        await cache.Ask(null, hello);
        await cache.Ask(null, "CLIENT", "TRACKING", "ON");
        _ = Task.Run(cache.Ping);
        return cache;
    }

    /// <summary>Returns a record, from memory if it is there; null if there is none.</summary>
    public async Task<string?> Get(string key)
    {
        // Without its connection no copy is kept fresh: connect again, with nothing.
        if (ended is { } why)
        {
            throw new IOException("the connection has ended", why);
        }
        return copies.TryGetValue(key, out var copy) ? copy : (string?)await Ask(key, "GET", key);
    }

    async Task<object?> Ask(string? key, params string[] arguments)
    {
        var text = new StringBuilder($"*{arguments.Length}\r\n");
        foreach (var argument in arguments)
        {
            text.Append($"${Encoding.UTF8.GetByteCount(argument)}\r\n{argument}\r\n");
        }
        var bytes = Encoding.UTF8.GetBytes(text.ToString());
        var done = new TaskCompletionSource<object?>(
            TaskCreationOptions.RunContinuationsAsynchronously);
        await sending.WaitAsync();
        try
        {
            waiting.Enqueue((key, done));
            await tcp.GetStream().WriteAsync(bytes);
        }
        finally
        {
            sending.Release();
        }
        // The reader may have ended just before.
        if (ended is { } why)
        {
            done.TrySetException(why);
        }
        return await done.Task;
    }

    /// <summary>Notices a connection that was cut without a word.</summary>
    async Task Ping()
    {
        try
        {
            while (ended is null)
            {
                await Task.Delay(PingEvery);
                await Ask(null, "PING").WaitAsync(PingEvery);
            }
        }
        catch (Exception error)
        {
            End(error);
        }
    }

    void ReadReplies()
    {
        try
        {
            while (true)
            {
                var reply = Read();
                if (reply is Push push)
                {
                    Apply(push.Parts);
                }
                else if (waiting.TryDequeue(out var first))
                {
                    // Before the next message is read, which may be the invalidation of this one.
                    if (first.Key is { } key && (reply is null || reply is string))
                    {
                        copies[key] = (string?)reply;
                    }
                    if (reply is Error error)
                    {
                        // The first word says what to do: see docs/redis.md.
                        first.Done.TrySetException(new IOException(error.Text));
                    }
                    else
                    {
                        first.Done.TrySetResult(reply);
                    }
                }
            }
        }
        catch (Exception error)
        {
            End(error);
        }
    }

    void Apply(List<object?> push)
    {
        if (push is not ["invalidate", var what])
        {
            return;
        }
        if (what is not List<object?> keys)
        {
            // Null: everything may be outdated.
            copies.Clear();
            return;
        }
        foreach (var key in keys.OfType<string>())
        {
            copies.TryRemove(key, out _);
        }
    }

    void End(Exception error)
    {
        ended ??= error;
        copies.Clear();
        tcp.Close();
        while (waiting.TryDequeue(out var one))
        {
            one.Done.TrySetException(error);
        }
    }

    sealed record Push(List<object?> Parts);
    sealed record Error(string Text);

    object? Read()
    {
        var line = Line();
        var rest = line[1..];
        return line[0] switch
        {
            '+' or ':' => rest,
            '-' => new Error(rest),
            '_' => null,
            '$' or '*' when rest == "-1" => null,
            '$' => Text(int.Parse(rest)),
            '*' or '~' => Several(int.Parse(rest)),
            '%' => Several(2 * int.Parse(rest)),
            '>' => new Push(Several(int.Parse(rest))),
            _ => throw new IOException($"no reply begins with {line[0]}"),
        };
    }

    List<object?> Several(int count)
    {
        var parts = new List<object?>();
        for (var at = 0; at < count; at++)
        {
            parts.Add(Read());
        }
        return parts;
    }

    string Text(int length)
    {
        var bytes = new byte[length + 2];
        stream.ReadExactly(bytes);
        return Encoding.UTF8.GetString(bytes, 0, length);
    }

    string Line()
    {
        var bytes = new List<byte>();
        while (true)
        {
            var next = stream.ReadByte();
            switch (next)
            {
                case -1: throw new EndOfStreamException("the server closed the connection");
                case '\r': break;
                case '\n': return Encoding.UTF8.GetString(bytes.ToArray());
                default: bytes.Add((byte)next); break;
            }
        }
    }

    public void Dispose() => tcp.Close();
}
