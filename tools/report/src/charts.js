// Draws the plots of a page with uPlot, from the JSON in each figure. Positions on all
// axes are transformed here (`SCALES`), so that uPlot sees linear scales only. Text reaches the
// page as text nodes or on a canvas, never as markup.
"use strict";
(() => {
  const CURVES = 6;
  const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [14, 4], [4, 4]];
  const FONT = "12px system-ui, sans-serif";
  const LINE_PX = 14;
  const HEAT_LEVELS = 8;
  // A curve without a point within this share of the axis has no value under the pointer.
  const NEAR = 0.06;
  const NINES = [0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999];

  const color = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const curveColor = (curve) => color(`c${(curve % CURVES) + 1}`);

  const grouped = (value) =>
    Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ",").replace("-", "−");
  const number = (value) => {
    const size = Math.abs(value);
    if (size === 0) return "0";
    if (size < 0.0001) return value.toExponential(1);
    if (size >= 99.95) return grouped(value);
    return value.toFixed(size < 0.1 ? 4 : size < 0.9995 ? 3 : size < 9.995 ? 2 : 1);
  };
  const micros = (us) => {
    if (us < 9.995) return `${us.toFixed(2)} µs`;
    if (us < 999.5) return `${us.toFixed(0)} µs`;
    if (us < 999500) return `${(us / 1e3).toFixed(us < 9995 ? 2 : us < 99950 ? 1 : 0)} ms`;
    return `${(us / 1e6).toFixed(2)} s`;
  };
  const percent = (share) => `${+(share * 100).toPrecision(6)} %`;
  // Formats of values, and of the round values at ticks.
  const UNITS = {
    number: { value: number, tick: (v) => (Number.isInteger(v) ? grouped(v) : number(v)) },
    seconds: { value: (v) => `${+v.toFixed(2)} s`, tick: (v) => `${+v.toPrecision(6)} s` },
    share: { value: (v) => `${+(v * 100).toPrecision(4)} %`, tick: percent },
    micros: {
      value: micros,
      tick: (us) => us === 0 ? "0"
        : us >= 1e6 ? `${+(us / 1e6).toPrecision(6)} s`
          : us >= 1e3 ? `${+(us / 1e3).toPrecision(6)} ms` : `${+us.toPrecision(6)} µs`,
    },
  };

  const even = (low, high, most) => {
    const rough = (high - low) / most;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((s) => s >= rough * 0.999);
    const ticks = [];
    for (let i = Math.ceil(low / step); i * step <= high + step * 1e-6; i++) ticks.push(i * step);
    return ticks;
  };
  const powers = (low, high, most) => {
    const decades = high - low;
    if (decades < 0.5) return even(10 ** low, 10 ** high, most).filter((v) => v > 0);
    const factors = decades * 3 <= most ? [1, 2, 5] : decades * 2 <= most ? [1, 3] : [1];
    const ticks = [];
    for (let e = Math.floor(low); e <= Math.ceil(high); e++) {
      factors.forEach((factor) => ticks.push(factor * 10 ** e));
    }
    return ticks;
  };
  // Position of a value, value of a position, and round values between two positions.
  const SCALES = {
    linear: { to: (v) => v, from: (p) => p, ticks: even },
    log: { to: (v) => (v > 0 ? Math.log10(v) : null), from: (p) => 10 ** p, ticks: powers },
    nines: {
      to: (v) => (v >= 0 && v < 1 ? -Math.log10(1 - v) : null),
      from: (p) => 1 - 10 ** -p,
      // From the top, without those that are close to the one before.
      ticks: (low, high, most) => {
        let free = high + 1;
        const apart = (high - low) / most * 0.9;
        return NINES.toReversed().filter((share) => {
          const position = -Math.log10(1 - share);
          const kept = position <= high + 1e-9 && free - position >= apart;
          if (kept) free = position;
          return kept;
        }).reverse();
      },
    },
  };

  class Axis {
    constructor(data, values) {
      this.name = data.name;
      this.title = data.name + (data.scale === "log" ? ", logarithmic" : "");
      this.scale = SCALES[data.scale];
      this.unit = UNITS[data.unit];
      const placed = values.map(this.scale.to).filter((p) => p !== null && Number.isFinite(p));
      const low = Math.min(...placed);
      const high = Math.max(...placed);
      this.range = data.scale === "log" ? [low - 0.04, high + 0.04] : [Math.min(0, low), high];
      if (this.range[1] - this.range[0] < 1e-9) this.range[1] = this.range[0] + 1;
      if (data.scale === "linear" && data.room) this.range[1] *= 1.04;
    }
    splits(low, high, most) {
      const ticks = this.scale.ticks(low, high, most).map(this.scale.to);
      return ticks.filter((p) => p >= low - 1e-9 && p <= high + 1e-9);
    }
    tick(position) { return this.unit.tick(+this.scale.from(position).toPrecision(9)); }
    value(position) { return this.unit.value(this.scale.from(position)); }
  }

  const element = (kind, name, text, parent) => {
    const made = document.createElement(kind);
    if (name) made.className = name;
    if (text) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  };

  // Breaks a label into lines of at most `room` px; the last one is shortened.
  const wrapped = (context, label, room, most) => {
    const lines = [""];
    for (const word of label.split(" ")) {
      const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
      if (!lines.at(-1) || context.measureText(longer).width <= room) {
        lines[lines.length - 1] = longer;
      } else lines.push(word);
    }
    const kept = lines.slice(0, most);
    if (lines.length > most) kept[most - 1] += "…";
    return kept.map((line) => {
      let fit = line;
      while (fit.length > 2 && context.measureText(fit).width > room) {
        fit = `${fit.replace("…", "").slice(0, -1)}…`;
      }
      return fit;
    });
  };

  // Runs `draw` on the canvas with CSS pixels as its unit and the page's font.
  const painting = (u, draw) => {
    const context = u.ctx;
    context.save();
    context.scale(uPlot.pxRatio, uPlot.pxRatio);
    context.font = FONT;
    context.textBaseline = "middle";
    const ratio = uPlot.pxRatio;
    const { left, top, width, height } = u.bbox;
    draw(context, {
      left: left / ratio, top: top / ratio,
      right: (left + width) / ratio, bottom: (top + height) / ratio,
      x: (value) => u.valToPos(value, "x", true) / ratio,
      y: (value) => u.valToPos(value, "y", true) / ratio,
    });
    context.restore();
  };

  // Limits drawing to the plot, and `more` px around it.
  const clipped = (context, box, more = 0) => {
    context.beginPath();
    context.rect(box.left - more, box.top - more, box.right - box.left + 2 * more,
      box.bottom - box.top + 2 * more);
    context.clip();
  };

  // A text that stays readable over lines.
  const haloed = (context, text, x, y) => {
    context.lineWidth = 4;
    context.lineJoin = "round";
    context.strokeStyle = color("page");
    context.fillStyle = color("text");
    context.strokeText(text, x, y);
    context.fillText(text, x, y);
  };

  class Chart {
    constructor(figure, data) {
      this.data = data;
      const { lines, dots, bands, rules, heat } = data;
      this.lines = lines.slice(0, CURVES);
      const of = (get) => [
        ...lines.flatMap((line) => line.points.map(get)),
        ...dots.map((dot) => get([dot.x, dot.y])),
      ];
      const ends = heat ? [0, heat.column_s * heat.counts.length] : [];
      const xRules = rules.flatMap((rule) => rule.x ?? []);
      const yRules = rules.flatMap((rule) => (rule.y === undefined ? [] : [rule.y]));
      const inBands = bands.flatMap((band) => band.points.flatMap((point) => point.slice(1)));
      this.x = new Axis(data.x, [...of((p) => p[0]), ...xRules, ...ends]);
      const rows = heat ? heat.rows : [];
      this.y = new Axis({ ...data.y, room: true },
        [...of((p) => p[1]), ...yRules, ...inBands, ...rows]);
      if (heat) this.y.range = [heat.rows[0], heat.rows.at(-1)].map(this.y.scale.to);
      this.box = element("div", "chart", "", figure);
      this.box.setAttribute("role", "img");
      this.box.setAttribute("aria-label", data.description);
      element("p", "chart-title", data.title, this.box);
      element("p", "chart-axes", `↑ ${this.y.title}   → ${this.x.title}`, this.box);
      this.plot = new uPlot(this.options(), this.columns(), this.box);
      this.tip = element("div", "tip", "", this.plot.over);
      this.notes();
      figure.classList.add("live");
      this.resize();
      new ResizeObserver(() => this.resize()).observe(figure);
    }

    // One array of positions for x, and one for each curve with nulls where it has no point.
    columns() {
      const { heat } = this.data;
      if (heat) {
        const middles = heat.counts.map((_, i) => (i + 0.5) * heat.column_s);
        return [middles, middles.map(() => null)];
      }
      const place = (points) => new Map(points.map(([x, y]) =>
        [this.x.scale.to(x), this.y.scale.to(y)]).filter(([x]) => x !== null));
      const curves = this.lines.map((line) => place(line.points));
      const xs = [...new Set(curves.flatMap((curve) => [...curve.keys()]))].sort((a, b) => a - b);
      return [xs, ...curves.map((curve) => xs.map((x) => curve.get(x) ?? null))];
    }

    options() {
      // `most` is the largest number of ticks, by the size of the drawing.
      const axis = (which, size, most) => ({
        stroke: () => color("quiet"),
        grid: { show: !this.data.heat, stroke: () => color("faint"), width: 1 },
        ticks: { show: false }, font: FONT, size, gap: 6,
        splits: (u, _, low, high) =>
          which.splits(low, high, Math.max(2, Math.floor(most(u)))),
        values: (_, splits) => splits.map((position) => which.tick(position)),
        border: { show: which === this.x, stroke: () => color("quiet"), width: 1 },
      });
      const full = (range) => (u, low, high) => {
        const xs = u.data[0];
        return low === null || (low <= xs[0] && high >= xs.at(-1)) ? range : [low, high];
      };
      const curve = (line, number) => ({
        label: line.label, stroke: () => curveColor(number), width: 1.9, spanGaps: true,
        dash: DASHES[number % CURVES],
        points: { show: line.points.length === 1, size: 6, fill: () => curveColor(number) },
      });
      return {
        width: 300, height: 200, legend: { show: false },
        padding: [10, (u) => this.margin(u), 0, 0],
        cursor: {
          y: false, drag: { x: !this.data.heat, y: false },
          points: { size: 8 },
          dataIdx: (u, series, index) => this.nearest(u, series, index),
        },
        scales: {
          x: { time: false, range: full(this.x.range) },
          y: { range: () => this.y.range },
        },
        axes: [axis(this.x, 30, (u) => u.width / 90), axis(this.y, 58, (u) => u.height / 44)],
        series: [{}, ...(this.data.heat ? [{}] : this.lines.map(curve))],
        hooks: {
          drawClear: [(u) => this.behind(u)],
          draw: [(u) => this.before(u)],
          setCursor: [(u) => this.point(u)],
        },
      };
    }

    // Returns the room for labels right of the plot, in px.
    margin(u) {
      if (this.data.heat || !this.lines.length) return 14;
      u.ctx.save();
      u.ctx.font = FONT;
      const widths = this.lines.map((line) => u.ctx.measureText(line.label).width);
      u.ctx.restore();
      return Math.max(24, Math.min(Math.max(...widths) + 16, u.width * 0.27));
    }

    nearest(u, series, index) {
      if (series === 0 || this.data.heat) return index;
      const [xs, ys] = [u.data[0], u.data[series]];
      const at = u.posToVal(u.cursor.left, "x");
      let found = null;
      for (let i = 0; i < xs.length; i++) {
        const closer = found === null || Math.abs(xs[i] - at) < Math.abs(xs[found] - at);
        if (ys[i] !== null && closer) found = i;
      }
      const reach = (u.scales.x.max - u.scales.x.min) * NEAR;
      return found !== null && Math.abs(xs[found] - at) <= reach ? found : null;
    }

    behind(u) {
      painting(u, (context, box) => {
        clipped(context, box);
        if (this.data.heat) this.cells(context, box);
        for (const band of this.data.bands) {
          const at = (x, y) => [box.x(this.x.scale.to(x)), box.y(this.y.scale.to(y))];
          context.globalAlpha = 0.16;
          context.fillStyle = curveColor(band.curve);
          context.beginPath();
          band.points.forEach(([x, low]) => context.lineTo(...at(x, low)));
          [...band.points].reverse().forEach(([x, , high]) => context.lineTo(...at(x, high)));
          context.fill();
        }
        context.globalAlpha = 0.14;
        context.fillStyle = color("text");
        for (const rule of this.data.rules.filter((one) => one.x?.length === 2)) {
          const [from, to] = rule.x.map((value) => box.x(this.x.scale.to(value)));
          context.fillRect(from, box.top, Math.max(2, to - from), box.bottom - box.top);
        }
      });
    }

    cells(context, box) {
      const { column_s, rows, counts } = this.data.heat;
      const most = Math.log1p(Math.max(1, ...counts.flat()));
      const ys = rows.map((us) => box.y(this.y.scale.to(us)));
      context.fillStyle = color("c1");
      counts.forEach((column, i) => {
        const [from, to] = [box.x(i * column_s), box.x((i + 1) * column_s)];
        column.forEach((count, row) => {
          if (!count) return;
          context.globalAlpha = Math.ceil(HEAT_LEVELS * Math.log1p(count) / most) / HEAT_LEVELS;
          context.fillRect(from, ys[row + 1], to - from + 0.2, ys[row] - ys[row + 1] + 0.2);
        });
      });
    }

    before(u) {
      painting(u, (context, box) => {
        context.save();
        clipped(context, box, 5);
        for (const dot of this.data.dots) {
          context.beginPath();
          context.arc(box.x(this.x.scale.to(dot.x)), box.y(this.y.scale.to(dot.y)), 3, 0, 7);
          context.fillStyle = dot.hollow ? color("page") : curveColor(dot.curve);
          context.strokeStyle = curveColor(dot.curve);
          context.setLineDash([]);
          context.lineWidth = 1.6;
          context.fill();
          if (dot.hollow) context.stroke();
        }
        this.data.rules.forEach((rule, number) => this.rule(context, box, rule, number));
        context.restore();
        if (!this.data.heat) this.labels(u, context, box);
      });
    }

    rule(context, box, rule, number) {
      const across = rule.y !== undefined;
      const at = across ? box.y(this.y.scale.to(rule.y)) : box.x(this.x.scale.to(rule.x[0]));
      context.setLineDash([3, 3]);
      context.strokeStyle = color("text");
      context.lineWidth = 1.4;
      context.beginPath();
      if (across) {
        context.moveTo(box.left, at);
        context.lineTo(box.right, at);
      } else if (rule.x.length === 1) {
        context.moveTo(at, box.top);
        context.lineTo(at, box.bottom);
      }
      context.stroke();
      context.setLineDash([]);
      const right = !across && at > (box.left + box.right) / 2;
      context.textAlign = right ? "right" : "left";
      const x = across ? box.left + 6 : at + (right ? -6 : 6);
      const below = across && at - box.top < 2 * LINE_PX;
      const y = across ? at + (below ? 9 : -9) : box.top + 9 + number * LINE_PX;
      const room = across || !right ? box.right - x : x - box.left;
      wrapped(context, rule.label, room - 8, across ? 1 : 3).forEach((line, i) =>
        haloed(context, line, x, y + i * LINE_PX));
    }

    // Writes the name of each curve right of its last visible point.
    labels(u, context, box) {
      const left = box.right + 8;
      const room = u.width - left - 2;
      const { min, max } = u.scales.x;
      const most = Math.max(1, Math.floor((box.bottom - box.top) / LINE_PX / this.lines.length));
      const ends = this.lines.flatMap((line, curve) => {
        const ys = u.data[curve + 1];
        const last = ys.findLastIndex((y, i) =>
          y !== null && u.data[0][i] >= min && u.data[0][i] <= max);
        if (last < 0) return [];
        const lines = wrapped(context, line.label, room, Math.min(4, most));
        const y = box.y(ys[last]);
        return [{ curve, lines, x: box.x(u.data[0][last]), y, at: y }];
      }).sort((a, b) => a.y - b.y);
      const half = (end) => end.lines.length * LINE_PX / 2;
      let free = box.top - LINE_PX / 2;
      for (const end of ends) {
        end.at = Math.max(end.at, free + half(end));
        free = end.at + half(end);
      }
      free = box.bottom + LINE_PX / 2;
      for (const end of [...ends].reverse()) {
        end.at = Math.min(end.at, free - half(end));
        free = end.at - half(end);
      }
      context.textAlign = "left";
      for (const { curve, lines, x, y, at } of ends) {
        context.strokeStyle = context.fillStyle = curveColor(curve);
        if (box.right - x > 6 || Math.abs(at - y) > 5) {
          context.globalAlpha = 0.6;
          context.lineWidth = 1;
          context.beginPath();
          context.moveTo(x + 2, y);
          context.lineTo(left - 2, at);
          context.stroke();
          context.globalAlpha = 1;
        }
        const first = at - (lines.length - 1) * LINE_PX / 2;
        lines.forEach((line, i) => context.fillText(line, left, first + i * LINE_PX));
      }
    }

    // Explains what has no label in the plot.
    notes() {
      const { dots, hollow, bands, heat } = this.data;
      const note = (mark, text) => {
        const line = element("p", "chart-note", "", this.box);
        if (mark) element("span", mark, "", line).setAttribute("aria-hidden", "true");
        line.append(text);
      };
      bands.forEach((band) => note(`key k${(band.curve % CURVES) + 1} shade`, band.label));
      if (hollow && dots.some((dot) => dot.hollow)) note("key ring", hollow);
      if (heat) note("", heat.note);
    }

    // Shows the values under the pointer.
    point(u) {
      const { left, top, idxs } = u.cursor;
      this.tip.replaceChildren();
      const shown = left >= 0 && (this.data.heat ? this.cellTip(u) : this.curveTip(u, idxs));
      this.tip.hidden = !shown;
      if (!shown) return;
      const beside = left > u.over.clientWidth / 2 ? left - this.tip.offsetWidth - 14 : left + 14;
      const low = u.over.clientHeight - this.tip.offsetHeight;
      this.tip.style.left = `${Math.max(-50, beside)}px`;
      this.tip.style.top = `${Math.max(0, Math.min(top - 10, low))}px`;
    }

    curveTip(u, idxs) {
      const found = this.lines.flatMap((line, curve) => {
        const index = idxs[curve + 1];
        return index === null || index === undefined || u.data[curve + 1][index] === null
          ? [] : [[curve, line.label, u.data[0][index], u.data[curve + 1][index]]];
      });
      if (!found.length) return false;
      const at = u.posToVal(u.cursor.left, "x");
      const near = found.reduce((a, b) => (Math.abs(a[2] - at) <= Math.abs(b[2] - at) ? a : b));
      element("p", "tip-x", `${this.data.x.name}: ${this.x.value(near[2])}`, this.tip);
      for (const [curve, label, x, y] of found) {
        const row = element("p", "", "", this.tip);
        element("span", `key k${curve + 1}`, "", row);
        const elsewhere = this.x.value(x) === this.x.value(near[2])
          ? "" : ` (at ${this.x.value(x)})`;
        row.append(`${label}: `);
        const unit = this.data.y.unit === "number" ? ` ${this.data.y.name}` : "";
        element("b", "", this.y.value(y) + unit, row);
        row.append(elsewhere);
      }
      return true;
    }

    cellTip(u) {
      const { column_s, rows, counts } = this.data.heat;
      const column = Math.floor(u.posToVal(u.cursor.left, "x") / column_s);
      const us = this.y.scale.from(u.posToVal(u.cursor.top, "y"));
      const row = rows.findLastIndex((low) => low <= us);
      const cells = counts[column];
      if (!cells || row < 0 || row >= rows.length - 1) return false;
      const all = cells.reduce((sum, count) => sum + count, 0);
      const ends = [column, column + 1].map((i) => +(i * column_s).toFixed(2));
      element("p", "tip-x", `${ends[0]} to ${ends[1]} s: ${grouped(all)} requests`, this.tip);
      const line = element("p", "", `${micros(rows[row])} to ${micros(rows[row + 1])}: `, this.tip);
      const share = all ? ` (${percent(+(cells[row] / all).toPrecision(3))})` : "";
      element("b", "", `${grouped(cells[row])} requests${share}`, line);
      return true;
    }

    resize() {
      const width = Math.min(1100, Math.floor(this.box.clientWidth));
      if (width > 0 && width !== this.plot.width) {
        this.plot.setSize({ width, height: width > 500 ? 310 : 260 });
      }
    }
  }

  // Shows the words of a bar or row beside the pointer instead of after the browser's delay.
  const hints = () => {
    const tip = element("div", "tip over", "", document.body);
    tip.hidden = true;
    for (const part of document.querySelectorAll("svg g > title")) {
      const row = part.parentNode;
      const words = part.textContent;
      part.remove();
      row.addEventListener("pointermove", (event) => {
        tip.textContent = words;
        tip.hidden = false;
        const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
        tip.style.left = `${Math.max(0, Math.min(event.pageX + 14, room))}px`;
        tip.style.top = `${event.pageY + 14}px`;
      });
      row.addEventListener("pointerleave", () => { tip.hidden = true; });
    }
  };

  const charts = [];
  for (const data of document.querySelectorAll("figure > script[type='application/json']")) {
    // The others are drawn if one cannot be.
    try {
      charts.push(new Chart(data.parentNode, JSON.parse(data.textContent)));
    } catch (error) {
      console.error(error);
      data.parentNode.querySelector(".chart")?.remove();
      element("p", "", "This chart cannot be drawn here; the tables have its figures.",
        data.parentNode);
    }
  }
  hints();
  // Colours are those of the style: light, dark or print.
  for (const media of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(media).addEventListener("change", () =>
      charts.forEach((chart) => chart.plot.redraw(false)));
  }
})();
