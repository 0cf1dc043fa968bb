-- Sends the requests of a file in turn (the file is shuffled), and prints wrk's counts as one JSON line.
-- A line is method, path, body and one header field (or nothing), with tabs between.
-- The second argument is the number of requests that are sent at once.
-- The requests are made once, at the start: what wrk spends per request should be little and the same for all.
local requests, count, at = {}, 0, 0

function init(arguments)
  local depth, together = tonumber(arguments[2] or "1"), {}
  for line in io.lines(arguments[1]) do
    local method, path, body, field = line:match("^(%u+)\t([^\t]*)\t([^\t]*)\t?(.*)$")
    local headers = {}
    if body ~= "" then headers["Content-Type"] = "application/json" end
    if field ~= "" then
      local name, value = field:match("^([^:]+): (.*)$")
      headers[name] = value
    end
    together[#together + 1] = wrk.format(method, path, headers, body ~= "" and body or nil)
    if #together == depth then
      count = count + 1
      requests[count] = table.concat(together)
      together = {}
    end
  end
end

function request()
  at = at % count + 1
  return requests[at]
end

function done(summary, latency, _)
  local e = summary.errors
  io.write(string.format(
    'BENCH {"requests":%d,"duration_us":%d,"bytes":%d,"errors":{"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d},' ..
    '"latency_us":{"p50":%d,"p75":%d,"p90":%d,"p99":%d,"p999":%d,"max":%d,"mean":%.1f}}\n',
    summary.requests, summary.duration, summary.bytes, e.connect, e.read, e.write, e.status, e.timeout,
    latency:percentile(50), latency:percentile(75), latency:percentile(90), latency:percentile(99),
    latency:percentile(99.9), latency.max, latency.mean))
end
