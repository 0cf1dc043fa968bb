// Charts over time with uPlot: lines, stacked areas, and a heat map. All take columns as they come
// from /history, and one range of time, so that they move together.
"use strict";
const charts = (() => {
  const FONT = "12px system-ui, sans-serif";
  const color = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  const trim = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
  const grouped = (value) => Math.round(value).toLocaleString("en");
  const short = (value) => {
    const size = Math.abs(value);
    if (size >= 1e9) return `${trim((value / 1e9).toPrecision(3))}G`;
    if (size >= 1e6) return `${trim((value / 1e6).toPrecision(3))}M`;
    if (size >= 1e4) return `${trim((value / 1e3).toPrecision(3))}k`;
    if (size >= 100 || value === 0) return grouped(value);
    return trim(value.toPrecision(size < 0.1 ? 1 : 3));
  };
  const micros = (us) => {
    if (us < 999.5) return `${trim(us.toPrecision(3))} µs`;
    if (us < 999500) return `${trim((us / 1e3).toPrecision(3))} ms`;
    return `${trim((us / 1e6).toPrecision(3))} s`;
  };
  const bytes = (value) => {
    if (value === 0) return "0";
    if (value < 1048576) return `${trim((value / 1024).toPrecision(3))} KiB`;
    if (value < 1073741824) return `${trim((value / 1048576).toPrecision(3))} MiB`;
    return `${trim((value / 1073741824).toPrecision(3))} GiB`;
  };
  const percent = (share) => `${trim((share * 100).toFixed(2))} %`;
  const FORMATS = {
    perSecond: (v) => `${short(v)}/s`, count: short, micros, bytes, percent,
    millis: (ms) => (ms === 0 ? "0" : micros(ms * 1e3)), cores: (v) => trim(v.toFixed(2)),
  };

  // Positions on a logarithmic axis are powers of ten, so that uPlot sees a linear scale.
  const toLog = (v) => (v === null ? null : Math.log10(Math.max(v, 1e-3)));
  const sum = (columns, i) => {
    let total = null;
    for (const column of columns) if (column[i] !== null) total = (total ?? 0) + column[i];
    return total;
  };

  const make = (kind, name, text, parent) => {
    const made = document.createElement(kind);
    if (name) made.className = name;
    if (text !== undefined) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  };

  // Shows what a word means where the pointer or the focus is (page.css).
  const explain = (element, meaning) => {
    if (!meaning) return;
    element.dataset.tip = meaning;
    element.tabIndex = 0;
  };

  const clock = (seconds) =>
    new Date(seconds * 1000).toLocaleTimeString("en-GB", { hour12: false });
  const all = [];
  const sync = uPlot.sync("time");

  const BINARY_STEPS = Array.from({ length: 40 }, (_, power) => 2 ** (power + 10));

  const axes = (spec) => [
    {
      stroke: () => color("quiet"), font: FONT, size: 24, gap: 3, space: 70,
      grid: { show: false }, ticks: { stroke: () => color("line"), width: 1, size: 4 },
      values: (u, splits, axis, space, step) =>
        splits.map((at) => (step >= 60 ? clock(at).slice(0, 5) : clock(at))),
    },
    {
      stroke: () => color("quiet"), font: FONT, size: 58, gap: 4, space: 28,
      grid: { stroke: () => color("faint"), width: 1 }, ticks: { show: false },
      splits: spec.log ? (u, axis, low, high) => {
        const found = [];
        for (let power = Math.ceil(low - 1e-9); power <= high + 1e-9; power++) found.push(power);
        return found;
      } : undefined,
      ...(spec.format === "bytes" ? { incrs: BINARY_STEPS } : {}),
      values: (u, splits) =>
        splits.map((at) => FORMATS[spec.format](spec.log ? 10 ** at : at)),
    },
  ];

  // Vertical lines where the process was started again.
  const drawStarts = (u, starts) => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.strokeStyle = color("quiet");
    ctx.setLineDash([4, 4]);
    for (const start of starts()) {
      const x = Math.round(u.valToPos(start, "x", true)) + 0.5;
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  };

  // A value that the line must stay below.
  const drawBound = (u, spec) => {
    const bound = spec.bound?.();
    if (!bound) return;
    const { ctx, bbox } = u;
    const place = spec.log ? toLog(bound.value) : bound.value;
    const y = Math.round(u.valToPos(place, "y", true)) + 0.5;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = color("bad");
    ctx.setLineDash([6, 4]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.font = FONT.replace("12", 12 * devicePixelRatio);
    ctx.textBaseline = "top";
    ctx.textAlign = "left";
    ctx.fillText(bound.name, bbox.left + 4, y + 3);
    ctx.restore();
  };

  // A sample without neighbours is a dot: a line needs two.
  const isolated = (u, index) => {
    const isKnown = (at) => (u.data[index][at] ?? null) !== null;
    return [...u.data[index].keys()].filter((at) =>
      isKnown(at) && !isKnown(at - 1) && !isKnown(at + 1));
  };

  const yRange = (spec) => (u, low, high) => {
    if (spec.range) return spec.range(low, high);
    const bound = spec.bound?.()?.value ?? 0;
    if (spec.log) {
      if (low === null || high === null) return [0, 4];
      if (bound) high = Math.max(high, toLog(bound));
      return [Math.floor(low + 0.05), Math.max(Math.ceil(high - 0.02), Math.floor(low + 0.05) + 1)];
    }
    const top = Math.max(high ?? 0, bound);
    return [0, top > 0 ? top * 1.08 : spec.least ?? 1];
  };

  // A chart's frame: title, a sentence that says the same in words, legend, canvas.
  const frame = (parent, spec) => {
    const figure = make("figure", "", undefined, parent);
    const caption = make("figcaption", "", undefined, figure);
    make("h2", "", spec.title, caption);
    const words = make("p", "", "", caption);
    const legend = make("ul", "legend", undefined, figure);
    const outputs = spec.lines.map((line, i) => {
      const item = make("li", `k${line.color ?? i + 1}`, `${line.name} `, legend);
      explain(item, line.tip);
      return make("output", "", "", spec.heat ? undefined : item);
    });
    if (spec.lines.length === 1 && !spec.heat) legend.className = "unseen";
    const plot = make("div", "plot", undefined, figure);
    plot.setAttribute("role", "img");
    return { figure, words, outputs, plot };
  };

  const width = (element) => Math.max(220, element.clientWidth);
  const from = (chart) => chart.from;
  const to = (chart) => chart.to;

  class TimeChart {
    constructor(parent, spec, starts) {
      this.spec = spec;
      Object.assign(this, frame(parent, spec));
      const fill = (line, i) => {
        if (!spec.stacked) return undefined;
        return () => `${color(`c${line.color ?? i + 1}`)}70`;
      };
      const series = spec.lines.map((line, i) => ({
        stroke: () => color(`c${line.color ?? i + 1}`), width: spec.heat ? 0 : 1.4,
        fill: fill(line, i), spanGaps: false,
        points: { show: () => false, size: 5, filter: spec.heat ? () => [] : isolated,
          fill: () => color(`c${line.color ?? i + 1}`) },
      }));
      // The whole of a stack comes first; each part is filled down to the next.
      if (spec.stacked) series.reverse();
      const bands = series.slice(1).map((_, i) => ({ series: [i + 1, i + 2] }));
      this.columns = spec.lines.map(() => []);
      this.chart = new uPlot({
        width: width(this.plot), height: this.plot.clientHeight || 168,
        series: [{}, ...series], bands: spec.stacked ? bands : [], axes: axes(spec),
        legend: { show: false },
        scales: {
          x: { time: true, range: (u, low, high) => [low, high] },
          y: { range: spec.heat ? () => this.heatRange(from(this), to(this)) : yRange(spec) },
        },
        cursor: { sync: { key: sync.key, setSeries: false }, drag: { x: false, y: false }, y: false,
          points: { show: !spec.heat } },
        hooks: {
          setCursor: [() => this.point()],
          draw: [(u) => { if (spec.heat) this.drawHeat(u); drawStarts(u, starts);
            drawBound(u, spec); }],
        },
      }, [[], ...spec.lines.map(() => [])], this.plot);
      all.push(this);
    }

    // `data`: a column for each line; null where nothing is known.
    set(times, data, from, to, words) {
      Object.assign(this, { times, columns: data, from, to });
      let drawn = data;
      if (this.spec.stacked) {
        drawn = data.map((_, upTo) => times.map((_, i) => sum(data.slice(0, upTo + 1), i)));
        drawn.reverse();
      } else if (this.spec.log) drawn = data.map((column) => column.map(toLog));
      this.words.textContent = words;
      this.plot.setAttribute("aria-label", `${this.spec.title}: ${words}`);
      this.chart.setData([times, ...drawn], false);
      this.chart.setScale("x", { min: from, max: to });
      this.point();
    }

    // The rows with a request in the time shown, one more on each side; positions on the axis.
    heatRange(from, to) {
      const { bounds, rows } = this.heat ?? { bounds: [], rows: [] };
      let [low, high] = [Infinity, 0];
      rows.forEach((row, i) => {
        if (!row?.length || this.times[i] < from || this.times[i] > to) return;
        low = Math.min(low, row[0]);
        high = Math.max(high, row[0] + row.length - 2);
      });
      if (high < low) return [0, 4];
      const bound = (row) => Math.log10(bounds[Math.min(Math.max(row, 0), bounds.length - 1)]);
      return [bound(low - 2), bound(high + 1)];
    }

    // Shows the values under the pointer in the legend, or the last ones.
    point() {
      const index = this.chart?.cursor.idx;
      const at = index ?? (this.times ? this.times.length - 1 : -1);
      const format = FORMATS[this.spec.format];
      this.outputs.forEach((output, i) => {
        const value = this.columns[i]?.[at];
        output.textContent = value === null || value === undefined ? "–" : format(value);
      });
    }

    // Without data only its caption remains, below the others.
    fold(isFolded) {
      const wasFolded = this.figure.classList.contains("folded");
      this.figure.classList.toggle("folded", isFolded);
      if (wasFolded && !isFolded) this.resize();
    }

    resize() {
      this.chart.setSize({ width: width(this.plot), height: this.plot.clientHeight });
    }

    // Rows are latencies on a logarithmic axis; darker cells have more requests.
    drawHeat(u) {
      const { bounds, rows } = this.heat ?? { bounds: [], rows: [] };
      const { ctx, bbox } = u;
      const [red, green, blue] = color("c1").match(/\w\w/g).map((part) => parseInt(part, 16));
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      const y = (us) => u.valToPos(Math.log10(us), "y", true);
      rows.forEach((row, i) => {
        if (!row || row.length === 0) return;
        const right = u.valToPos(this.times[i], "x", true);
        const left = u.valToPos(this.times[i] - Math.min(this.intervals[i], 2.5), "x", true);
        const total = row.reduce((most, count, at) => (at ? most + count : 0), 0);
        for (let cell = 1; cell < row.length; cell++) {
          if (row[cell] === 0) continue;
          const at = row[0] + cell - 1;
          const low = y(at === 0 ? bounds[0] / 1.5 : bounds[at - 1]);
          const high = y(at >= bounds.length ? bounds[at - 1] * 1.5 : bounds[at]);
          // A single slow request among millions must be visible too.
          const share = Math.log10(1 + 9999 * row[cell] / total) / 4;
          ctx.fillStyle = `rgba(${red},${green},${blue},${0.12 + 0.88 * share})`;
          ctx.fillRect(Math.floor(left), Math.floor(high), Math.ceil(right - left),
            Math.ceil(low - high));
        }
      });
      ctx.restore();
    }
  }

  let pending = null;
  const later = (run) => {
    clearTimeout(pending);
    pending = setTimeout(run, 80);
  };
  addEventListener("resize", () => later(() => all.forEach((chart) => chart.resize())));
  // Canvases do not follow the style sheet by themselves.
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    all.forEach((chart) => chart.chart.redraw(false, true)));

  // A small line without axes, drawn once: positions are shares of the range.
  const spark = (values, low, high) => {
    const line = document.getElementById("spark").content.firstElementChild.cloneNode(true);
    let path = "";
    let isOpen = false;
    values.forEach((value, i) => {
      if (value === null) { isOpen = false; return; }
      const x = (100 * i / Math.max(1, values.length - 1)).toFixed(1);
      const y = (19 - 18 * (value - low) / Math.max(high - low, 1e-9)).toFixed(1);
      // A round end makes a dot of a single value.
      path += isOpen ? `L${x} ${y}` : `M${x} ${y}h.01`;
      isOpen = true;
    });
    line.firstElementChild.setAttribute("d", path);
    return line;
  };

  // The values whose labels fit beside those of the ones before them.
  const LABEL_PX = 62;
  const apart = (u, values) => values.reduce((kept, value) => {
    const at = u.valToPos(value, "x");
    const fits = kept.every((other) => Math.abs(u.valToPos(other, "x") - at) >= LABEL_PX);
    return fits ? [...kept, value] : kept;
  }, []);

  // Predicted hit ratio by capacity, with the interval as a band.
  const capacityChart = (parent, points, present) => {
    const figure = frame(parent, {
      title: "Predicted hit ratio by capacity", lines: [{ name: "hit ratio" }],
    });
    const edge = { width: 0, stroke: "transparent", points: { show: false } };
    const chart = new uPlot({
      width: width(figure.plot), height: figure.plot.clientHeight || 168, legend: { show: false },
      cursor: { show: false },
      scales: { x: { time: false }, y: { range: (u, low, high) =>
        [Math.max(0, low - 0.02), Math.min(1, high + 0.02)] } },
      series: [{}, edge, edge,
        { stroke: () => color("c1"), width: 1.6,
          points: { show: true, size: 6, fill: () => color("page") } }],
      bands: [{ series: [1, 2], fill: () => `${color("c1")}33` }],
      axes: [
        { stroke: () => color("quiet"), font: FONT, size: 24, grid: { show: false },
          splits: () => points.map((point) => Math.log2(point.capacity_bytes)),
          values: (u, splits) => {
            const shown = apart(u, [Math.log2(present), ...splits]);
            return splits.map((at) => (shown.includes(at) ? bytes(2 ** at) : ""));
          } },
        { stroke: () => color("quiet"), font: FONT, size: 58,
          grid: { stroke: () => color("faint"), width: 1 },
          values: (u, splits) => splits.map(percent) },
      ],
      hooks: { draw: [(u) => drawStarts(u, () => [Math.log2(present)])] },
    }, [[], [], [], []], figure.plot);
    const set = (points) => chart.setData([
      points.map((point) => Math.log2(point.capacity_bytes)),
      points.map((point) => point.high), points.map((point) => point.low),
      points.map((point) => point.hit_ratio),
    ]);
    set(points);
    all.push({ chart, resize: () =>
      chart.setSize({ width: width(figure.plot), height: figure.plot.clientHeight }) });
    return (points, words, label) => {
      set(points);
      figure.words.textContent = words;
      figure.plot.setAttribute("aria-label", label);
    };
  };

  return { TimeChart, explain, spark, capacityChart, make, clock, sum, grouped, ...FORMATS };
})();
