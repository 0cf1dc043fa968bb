// An event loop: node loop.js PORT timer|block MS
const http = require("node:http");

const [port, how, ms] = process.argv.slice(2);

function block() {
  const end = process.hrtime.bigint() + BigInt(ms) * 1_000_000n;
  while (process.hrtime.bigint() < end);
}

http
  .createServer((_, response) => {
    if (how === "timer") {
      setTimeout(() => response.end("ok"), Number(ms));
    } else {
      block();
      response.end("ok");
    }
  })
  .listen(Number(port), "127.0.0.1");
