// The live page: asks /history, /status and /hot-keys, and shows what they say. Survives restarts
// of the server and the sleep of a background tab.
"use strict";
(() => {
  const { make, sum, clock, micros, millis, perSecond, percent, bytes, cores, count, grouped } =
    charts;
  const byId = (id) => document.getElementById(id);
  // Time between two rounds; a hidden tab needs them for its title only.
  const PERIOD_MS = 1000;
  const HIDDEN_PERIOD_MS = 10000;
  const KEYS_EVERY = 3;
  const TIMEOUT_MS = 5000;
  // A longer interval is a gap: the process was stopped or suspended.
  const GAP_S = 2.5;
  const KEPT_S = 600;
  // Shortest time on the axis.
  const SHOWN_S_MIN = 60;

  // Columns as received, oldest first.
  const history = {
    next: 0, started: 0, at: [], interval: [], series: new Map(), heat: [], bounds: [],
    collections: new Map(), starts: [],
  };
  let status = null;
  let unreachableSince = null;
  let rounds = 0;

  const get = async (path) => {
    const response = await fetch(path, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (response.status === 401) throw new Error("the admin token is needed; load the page again");
    if (!response.ok) throw new Error(`status ${response.status}`);
    return response.json();
  };

  const nulls = (length) => new Array(length).fill(null);

  // Every column, with a setter: gaps and the drop of old samples concern all alike.
  const columns = () => [
    ...history.series.values(), history.heat, history.interval,
    ...[...history.collections.values()].flatMap((own) => [own.memory, own.database]),
  ];

  const append = (answer) => {
    if (answer.started_unix_ms !== history.started && history.started !== 0) {
      history.starts.push(answer.started_unix_ms / 1000);
    }
    history.started = answer.started_unix_ms;
    history.next = answer.next;
    history.bounds = answer.heat.bounds_us;
    const newest = history.at.at(-1) ?? 0;
    const names = Object.keys(answer.series);
    for (const name of names) {
      if (!history.series.has(name)) history.series.set(name, nulls(history.at.length));
    }
    for (const name of Object.keys(answer.collections)) {
      if (!history.collections.has(name)) {
        const length = history.at.length;
        history.collections.set(name, { memory: nulls(length), database: nulls(length) });
      }
    }
    answer.at_unix_ms.forEach((at_ms, i) => {
      const at = at_ms / 1000;
      if (at <= newest) return;
      const interval = answer.interval_ms[i] / 1000;
      const before = history.at.at(-1);
      if (interval > GAP_S || (before && at - before > GAP_S)) {
        // Nothing is known of the time in between; one empty sample breaks the lines.
        history.at.push(at - Math.min(interval, 1) / 2);
        columns().forEach((column) => column.push(null));
      }
      history.at.push(at);
      history.interval.push(interval);
      for (const [name, column] of history.series) column.push(answer.series[name]?.[i] ?? null);
      history.heat.push(answer.heat.counts[i]);
      for (const [name, own] of history.collections) {
        own.memory.push(answer.collections[name]?.memory[i] ?? null);
        own.database.push(answer.collections[name]?.database[i] ?? null);
      }
    });
    const oldest = (history.at.at(-1) ?? 0) - KEPT_S;
    const stale = history.at.findIndex((at) => at >= oldest);
    if (stale > 0) {
      history.at.splice(0, stale);
      columns().forEach((column) => column.splice(0, stale));
    }
    history.starts = history.starts.filter((start) => start >= oldest);
  };

  const column = (name) => history.series.get(name) ?? nulls(history.at.length);
  const total = (names) => {
    const parts = names.map(column);
    return history.at.map((_, i) => sum(parts, i));
  };
  const latest = (values) => values.at(-1) ?? null;
  const highest = (values) => values.reduce((most, value) => Math.max(most, value ?? 0), 0);
  const shown = (value, format) => (value === null || value === undefined ? "–" : format(value));

  const OUTCOMES = ["hit", "stale", "coalesced", "miss", "bypass", "none"];
  const requests = () => total(OUTCOMES.map((name) => `requests.${name}`));
  const REASONS = ["shed", "rate_limit", "breaker", "deadline", "queue", "requests_in_flight",
    "memory", "connections", "malformed", "access"];
  const refusals = () => total(REASONS.map((name) => `refused.${name}`));
  const hitRatio = () => {
    const [memory, database] = [column("lookups.memory"), column("lookups.database")];
    return memory.map((hits, i) => {
      const all = sum([memory, database], i);
      return all ? hits / all : null;
    });
  };

  const CLASSES = ["2xx", "3xx", "4xx", "5xx", "other"].map((name) => `status.${name}`);
  // As `hotrow top`: a refusal that is answered 5xx is one of them.
  const failures = () => column("status.5xx");
  const failureShare = () => (latest(failures()) ?? 0) / (latest(total(CLASSES)) || 1);

  // Each chart: its lines, and the sentence that says its present state in words. Charts of `top`
  // are above the tables: what clients see, and what the database does.
  const SPECS = [
    {
      title: "Requests by outcome", format: "perSecond", stacked: true, top: true,
      lines: [
        { name: "memory", tip: "Answered from the cache, without the database." },
        { name: "stale", color: 5, tip: "Answered from the cache past a bound, and marked stale: "
          + "when_stale or stale-if-error allows it." },
        { name: "coalesced", color: 3, tip: "Waited for a database read that another request had "
          + "begun for the same key, and shared its answer." },
        { name: "database", color: 2, tip: "A miss: not in the cache, so this request began a "
          + "database read." },
        { name: "bypass", color: 4, tip: "Read the database although the cache may have the "
          + "record: the feed is behind, the cache is off, or the client asked for it." },
        { name: "without the cache", color: 7, tip: "About no record, or refused before the "
          + "cache was looked at." },
      ],
      data: () => OUTCOMES.map((name) => column(`requests.${name}`)),
      words: () => `now ${shown(latest(requests()), perSecond)}, highest `
        + perSecond(highest(requests())),
    },
    {
      title: "Latency", format: "micros", log: true, top: true,
      lines: [{ name: "hit p50", tip: "Half of the answers from memory took at most this." },
        { name: "hit p99", color: 8 }, { name: "hit p99.9", color: 10 },
        { name: "miss p50", color: 2, tip: "Half of the requests that read the database took at "
          + "most this, with their wait for a query." },
        { name: "miss p99", color: 6 }],
      data: () => ["hit_p50", "hit_p99", "hit_p999", "miss_p50", "miss_p99"].map((name) =>
        column(`latency.${name}_us`)),
      words: () => "in the server; p99 of all "
        + shown(latest(column("latency.all_p99_us")), micros),
    },
    {
      title: "Database", format: "perSecond", least: 10, top: true,
      lines: [{ name: "queries", color: 2 },
        { name: "keys read", color: 5, tip: "More than queries: one query reads several keys." },
        { name: "failed keys", color: 6 }],
      data: () => ["queries", "keys", "failed_keys"].map((name) => column(`database.${name}`)),
      words: () => `reads take ${shown(latest(column("latency.miss_p99_us")), micros)} (p99), of `
        + `that waiting ${shown(latest(column("queue.wait_p99_us")), micros)}; `
        + `${shown(latest(column("database.in_flight")), count)} of at most `
        + `${shown(latest(column("database.limit")), count)} queries in flight`,
    },
    {
      title: "Staleness", format: "millis", log: true, top: true,
      lines: [{ name: "behind the database", color: 3 }],
      data: () => [column("feed.staleness_ms")],
      bound: () => {
        const feed = feedOf(status);
        return feed?.followed && { value: feed.max_staleness_ms,
          name: `max_staleness ${millis(feed.max_staleness_ms)}` };
      },
      words: () => {
        const feed = feedOf(status);
        if (!feed) return "";
        if (!feed.followed) return "no change feed: answers may be as old as their TTL";
        return `now ${shown(latest(column("feed.staleness_ms")), millis)}, `
          + `allowed ${millis(feed.max_staleness_ms)}`;
      },
    },
    {
      title: "Errors and refusals", format: "perSecond", least: 10, top: true, alarm: true,
      lines: [{ name: "5xx", color: 6, tip: "All answers 500 to 599, refusals included." }, ...[
        ["shed", 2, "Refused under pressure: misses first, hits never."], ["rate limit", 5],
        ["breaker", 4, "Not read: the circuit breaker is open after failed reads. In keys."],
        ["deadline", 3, "Not read: the database would have answered too late. In keys."],
        ["queue full", 8], ["too many waiting", 9], ["no memory", 10], ["connections", 7],
        ["malformed", 1], ["access", 7],
      ].map(([name, color, tip]) => ({ name, color, tip }))],
      data: () => [failures(), ...REASONS.map((name) => column(`refused.${name}`))],
      words: () => `5xx now ${shown(latest(failures()), perSecond)}, highest `
        + `${perSecond(highest(failures()))}; refused now ${shown(latest(refusals()), perSecond)}`,
      onlyNonZero: true,
    },
    {
      title: "Hit ratio", format: "percent", least: 1,
      lines: [{ name: "answered from memory", color: 1 }],
      range: (low, high) => [low === null ? 0 : Math.max(0, Math.floor(low * 20 - 0.5) / 20), 1],
      data: () => [hitRatio()],
      words: () => `lookups answered from memory, now ${shown(latest(hitRatio()), percent)}`,
    },
    {
      title: "Latency heat map", format: "micros", log: true, heat: true,
      lines: [{ name: "requests by latency; darker: more of that second's" }],
      data: () => [column("latency.all_p50_us")],
      words: () => `p99.9 of all ${shown(latest(column("latency.all_p999_us")), micros)}`,
    },
    {
      title: "Waiting", format: "count", least: 10,
      lines: [{ name: "requests", color: 4 }, { name: "keys in the queue", color: 2 }],
      data: () => [column("queue.requests"), column("queue.keys")],
      words: () => "p99 of the wait for a query "
        + shown(latest(column("queue.wait_p99_us")), micros),
    },
    {
      title: "Processor", format: "cores", least: 0.1,
      lines: [{ name: "cores used", color: 9 }], data: () => [column("process.cpu_cores")],
      words: () => `now ${shown(latest(column("process.cpu_cores")), cores)} cores`,
    },
    {
      title: "Memory", format: "bytes", least: 1048576,
      lines: [{ name: "process", color: 9 }, { name: "cache", color: 1 }],
      data: () => [column("process.memory_bytes"), column("cache.bytes")],
      words: () => (status ? `cache ${bytes(status.cache.bytes)} of `
        + `${bytes(status.cache.capacity_bytes)} used` : ""),
    },
  ];

  const drawn = SPECS.map((spec) =>
    [spec, new charts.TimeChart(byId(spec.top ? "charts" : "more-charts"), spec,
      () => history.starts)]);

  const range = () => Number(document.querySelector("input[name=range]:checked").value);

  // Whether a chart has nothing to show; a rate of zero is nothing, a staleness of zero is a value.
  const isEmpty = (spec, data, from) => {
    const least = ["perSecond", "count"].includes(spec.format) ? 0 : -1;
    return data.every((column) =>
      !column.some((value, i) => value !== null && value > least && history.at[i] >= from));
  };

  const draw = () => {
    if (history.at.length === 0) return;
    const to = history.at.at(-1);
    // A young history fills the width too.
    const from = Math.max(to - range(), Math.min(history.at[0], to - SHOWN_S_MIN));
    for (const [spec, chart] of drawn) {
      const data = spec.data();
      if (spec.heat) {
        chart.heat = { bounds: history.bounds, rows: history.heat };
        chart.intervals = history.interval;
      }
      if (spec.onlyNonZero) chart.outputs.forEach((output, i) => {
        output.parentElement.hidden = i > 0 && highest(data[i]) === 0;
      });
      const isFolded = isEmpty(spec, data, from);
      chart.fold(isFolded);
      chart.figure.classList.toggle("alarm", Boolean(spec.alarm) && highest(data[0]) > 0);
      chart.set(history.at, data, from, to, isFolded ? "nothing in the time shown" : spec.words());
    }
  };

  // Of several sources, the feed that is furthest behind.
  const feedOf = (status) => status && Object.values(status.sources)
    .map((source) => source.feed)
    .reduce((most, feed) => (feed.staleness_ms > (most.staleness_ms ?? -1) ? feed : most));

  const databaseAway = () => {
    const sources = Object.entries(status.sources);
    const away = sources.filter(([, source]) => !source.reachable).map(([name]) => name);
    const names = sources.length > 1 && away.length ? ` ${away.join(", ")}` : "";
    return `the database${names} cannot be reached`;
  };

  // That of the last sample, so that all parts of the page say the same.
  const staleness = (feed) => latest(column("feed.staleness_ms")) ?? feed.staleness_ms;

  const figure = (name, value, unit, isBad) => {
    const entry = make("div", isBad ? "bad" : "");
    make("dt", "", name, entry);
    const shownValue = make("dd", "", `${value} `, entry);
    if (unit) make("small", "", unit, shownValue);
    return entry;
  };

  const figures = () => {
    const used = status.cache.bytes / status.cache.capacity_bytes;
    const feed = feedOf(status);
    byId("figures").replaceChildren(
      figure("Requests", shown(latest(requests()), perSecond)),
      figure("Hit ratio", shown(latest(hitRatio()), percent)),
      figure("5xx", shown(latest(failures()), perSecond),
        `${shown(latest(refusals()), perSecond)} refused`, latest(failures()) > 0),
      figure("p99", shown(latest(column("latency.all_p99_us")), micros)),
      figure("Miss p99", shown(latest(column("latency.miss_p99_us")), micros)),
      figure("Staleness", feed?.followed ? millis(staleness(feed)) : "–",
        feed?.followed ? `of ${millis(feed.max_staleness_ms)}` : "no feed"),
      ...(feed?.strict.waits ? [figure("Strict reads", grouped(feed.strict.waits),
        `p99 ${micros(feed.strict.wait_p99_us)}`)] : []),
      figure("Database", shown(latest(column("database.queries")), perSecond), "queries"),
      figure("Connections", grouped(status.connections)),
      figure("Cache", percent(used), `of ${bytes(status.cache.capacity_bytes)}`),
    );
  };

  const CONDITIONS = {
    process: () => "it is draining",
    feed: (ready, feed) => (ready.feed === "starting" ? "the change feed has not caught up yet"
      : `the change feed is ${millis(ready.staleness_ms)} behind, more than the `
        + `${millis(feed.max_staleness_ms)} allowed`),
    source: databaseAway,
    breaker: (ready) => `the circuit breaker is ${ready.breaker}`,
    token_keys: () => "the keys that verify tokens are missing or too old",
    warm_start: () => "the warm start has not ended",
  };

  // Share of answers 5xx from which they are the first thing said.
  const OUTAGE_SHARE = 0.05;

  // The state in one sentence, and what an operator should know besides.
  const verdict = () => {
    const ready = status.readiness;
    const feed = feedOf(status);
    const reasons = ready.unmet.map((name) => CONDITIONS[name]?.(ready, feed) ?? name);
    const warnings = [];
    if (feed.followed && !feed.current && !ready.unmet.includes("feed")) {
      warnings.push(`the change feed is behind; answers follow when_stale = "${feed.when_stale}"`);
    }
    if (!feed.followed) warnings.push("no change feed: answers may be as old as their TTL");
    if (ready.source !== "reachable" && !ready.unmet.includes("source")) {
      warnings.push(databaseAway());
    }
    if (ready.breaker !== "closed" && !ready.unmet.includes("breaker")) {
      warnings.push(`the circuit breaker is ${ready.breaker}`);
    }
    const { overload } = status;
    if (overload.level !== "normal") {
      const where = Object.entries(overload.pressure).filter(([, level]) => level !== "normal");
      warnings.push(`pressure is ${overload.level} (${where.map(([name]) => name).join(", ")})`);
    }
    if ((latest(column("database.failed_keys")) ?? 0) > 0) warnings.push("database reads fail");
    const share = failureShare();
    const isOutage = share >= OUTAGE_SHARE;
    if (share > 0 && !isOutage) warnings.push("some answers are 5xx");
    if ((latest(refusals()) ?? 0) > 0) warnings.push("requests are refused");
    const feedNote = feed.followed && feed.current
      ? `The feed follows the database, ${millis(staleness(feed))} behind.` : "";
    const failedNote = share > 0 ? `5xx: ${perSecond(latest(failures()))}, ${percent(share)} of `
      + "the answers." : "";
    if (isOutage) {
      const why = [...reasons, ...warnings].join("; ");
      return ["bad", `Outage: clients get 5xx${why ? `: ${why}` : ""}.`, [failedNote, feedNote]];
    }
    if (!ready.ready) {
      const also = warnings.length ? `Besides, ${warnings.join("; ")}.` : "";
      return ["bad", `Not ready: ${reasons.join("; ")}.`, [also, failedNote, feedNote]];
    }
    return [warnings.length ? "warn" : "good",
      warnings.length ? `Ready, but ${warnings.join("; ")}.` : "Ready.",
      [failedNote, feedNote]];
  };

  const setText = (id, text) => {
    // Unchanged text is not set again: a screen reader would repeat it.
    if (byId(id).textContent !== text) byId(id).textContent = text;
  };

  const show = () => {
    const [kind, sentence, notes] = verdict();
    byId("state").className = kind;
    // Numbers that change every second stay out of the part that is read aloud.
    setText("verdict", sentence);
    const ratio = latest(hitRatio());
    const hits = ratio === null ? "No record is requested now."
      : `${percent(ratio)} of the lookups are answered from memory.`;
    setText("why", [...notes, hits].filter((note) => note).join(" "));
    setText("host", location.host);
    const up = status.uptime_s;
    const age = up < 120 ? `${up} s` : up < 7200 ? `${Math.floor(up / 60)} min`
      : up < 172800 ? `${Math.floor(up / 3600)} h` : `${Math.floor(up / 86400)} d`;
    setText("about", `version ${status.version}, up ${age}`);
    document.title = `${kind === "good" ? "" : kind === "warn" ? "! " : "✕ "}Hotrow `
      + location.host;
    figures();
    tables.requireToken(status.admin?.token_required ?? false);
    tables.collections(status, history);
    tables.rules(status.limits.rate ?? {});
    memoryWorth(status.miss_ratio_curve);
    draw();
  };

  let setCurve = null;
  // Present when the server predicts hit ratios at other capacities.
  const memoryWorth = (curve) => {
    const points = curve?.points ?? [];
    const sentence = curve?.sentence ?? (curve?.unknown && `Not known: ${curve.unknown}.`);
    byId("memory-worth").hidden = points.length < 2 && !sentence;
    byId("memory-worth-chart").hidden = points.length < 2;
    setText("memory-worth-text", sentence ?? "");
    if (points.length < 2) return;
    setCurve ??= charts.capacityChart(byId("memory-worth-chart"), points,
      status.cache.capacity_bytes);
    const label = points.map((point) => `${bytes(point.capacity_bytes)}: `
      + `${percent(point.hit_ratio)} (${percent(point.low)} to ${percent(point.high)})`);
    setCurve(points, "with its interval; the dashed line is the present capacity",
      label.join(", "));
  };

  const showUnreachable = (error) => {
    unreachableSince ??= Date.now() / 1000;
    const why = error.name === "TimeoutError" ? `no answer within ${TIMEOUT_MS / 1000} s`
      : error instanceof TypeError ? "no connection" : error.message;
    byId("state").className = "bad";
    setText("verdict", `Not reachable since ${clock(unreachableSince)}: ${why}.`);
    setText("why", "What is shown below is older. This page goes on trying.");
    document.title = `✕ Hotrow ${location.host}`;
  };

  const round = async () => {
    const withKeys = rounds % KEYS_EVERY === 0;
    const [answer, state, keys] = await Promise.all([
      get(`history?since=${history.next}`), get("status"),
      withKeys ? get("hot-keys") : null,
    ]);
    rounds += 1;
    unreachableSince = null;
    append(answer);
    status = state;
    show();
    if (keys) tables.keys(keys);
  };

  let timer = null;
  let isRunning = false;
  const turn = async () => {
    clearTimeout(timer);
    if (isRunning) return;
    isRunning = true;
    try {
      await round();
    } catch (error) {
      showUnreachable(error);
      console.warn(error);
    }
    isRunning = false;
    timer = setTimeout(turn, document.hidden ? HIDDEN_PERIOD_MS : PERIOD_MS);
  };

  document.querySelectorAll("th [data-tip]").forEach((word) => { word.tabIndex = 0; });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) turn(); });
  document.querySelectorAll("input[name=range]").forEach((input) =>
    input.addEventListener("change", draw));
  turn();
})();
