// Reads a record twice: read COLLECTION ID. See ../README.md.

interface Problem {
  title: string;
  status: number;
  detail: string;
}

interface Read<Row> {
  /** Undefined if the given entity tag is still that of the record. */
  record: Row | undefined;
  etag: string;
}

/** Reads records, and remembers the newest position that it has seen. */
class Client {
  position: string | null = null;

  constructor(private readonly url: string, private readonly key?: string) {}

  /** Throws an Error for every problem. `fetch` decompresses by itself. */
  async get<Row>(collection: string, id: string, etag = ""): Promise<Read<Row>> {
    const headers: Record<string, string> = {};
    if (this.key) headers["Authorization"] = `Bearer ${this.key}`;
    if (this.position) headers["Hotrow-Min-Position"] = this.position;
    if (etag) headers["If-None-Match"] = etag;
    const target = `${this.url}/${collection}/${encodeURIComponent(id)}`;
    const answer = await fetch(target, { headers, signal: AbortSignal.timeout(10_000) });
    if (answer.status !== 200 && answer.status !== 304) {
      const problem = (await answer.json()) as Problem;
      throw new Error(`${problem.status}: ${problem.title}`);
    }
    this.position = answer.headers.get("hotrow-position");
    if (answer.status === 304) return { record: undefined, etag };
    return { record: (await answer.json()) as Row, etag: answer.headers.get("etag") ?? "" };
  }
}

async function main(collection: string, id: string): Promise<void> {
  const url = process.env.HOTROW_URL ?? "http://127.0.0.1:8080";
  const client = new Client(url, process.env.HOTROW_KEY);
  const first = await client.get<unknown>(collection, id);
  console.log(JSON.stringify(first.record));
  console.log("position", client.position);
  const second = await client.get<unknown>(collection, id, first.etag);
  console.log(second.record === undefined ? "unchanged" : JSON.stringify(second.record));
}

main(process.argv[2], process.argv[3]).catch((error: Error) => {
  console.error(error.message);
  process.exitCode = 1;
});
