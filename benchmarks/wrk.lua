-- Posts bodies drawn at random from a file (one a line), and ends with one line of JSON.
-- Arguments: the file, and the value of a Cache-Control header, if there is to be one.
local requests = {}

function init(args)
  math.randomseed(1)
  local headers = { ["Content-Type"] = "application/json", ["Cache-Control"] = args[2] }
  for body in io.lines(args[1]) do
    requests[#requests + 1] = wrk.format("POST", nil, headers, body)
  end
end

function request()
  return requests[math.random(#requests)]
end

function done(summary, latency, _)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests": %d, "seconds": %f, "p50_ms": %f, "p99_ms": %f, "failed": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
