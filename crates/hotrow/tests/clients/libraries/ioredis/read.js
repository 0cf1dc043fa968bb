// What ioredis gets from Hotrow over its Redis protocol, one line for each question.
import Redis from "ioredis";

const [host, port] = process.env.HOTROW_REDIS_ADDRESS.split(":");
const options = { host, port: Number(port), maxRetriesPerRequest: 0, retryStrategy: null };

const client = new Redis({ ...options, password: process.env.HOTROW_KEY });
console.log("get", await client.get("products:1"));
console.log("missing", await client.get("products:9"));
const records = await client.mget("products:1", "products:9", "products:2");
console.log("mget", records[0], records[1] === null, records[2]);
console.log("exists", await client.exists("products:1", "products:9"));
console.log("wrong", await client.set("products:1", "x").catch((error) => error.message));
await client.quit();

const stranger = new Redis({ ...options, password: "hrk_wrong" });
// The library reports a refused credential as an event, and in each command.
stranger.on("error", () => {});
console.log("auth", await stranger.get("products:1").catch((error) => error.message));
stranger.disconnect();
