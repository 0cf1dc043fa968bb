// Tables of collections, keys and rate limits, and the changes that an operator can make in them.
// The token of a change is asked for, kept in memory only, and never part of a URL.
"use strict";
const tables = (() => {
  const { make, grouped, bytes, percent, perSecond, spark } = charts;
  const byId = (id) => document.getElementById(id);
  let token = "";
  let needsToken = false;
  let pendingChange = null;

  const cell = (row, kind, content) => {
    const td = make("td", kind, undefined, row);
    if (content instanceof Node) td.append(content);
    else td.textContent = content;
    return td;
  };
  const button = (text, label, act) => {
    const made = make("button", "", text);
    made.type = "button";
    made.setAttribute("aria-label", label);
    made.addEventListener("click", act);
    return made;
  };

  // What drops entries is behind a menu, and asks before it acts.
  const menu = (name, act) => {
    const made = make("details", "menu");
    made.name = "menu";
    make("summary", "", "⋯", made).setAttribute("aria-label", `Actions for ${name}`);
    made.append(button("Purge …", `Purge ${name}`, () => {
      made.open = false;
      act();
    }));
    return made;
  };
  const closeMenus = (kept) => document.querySelectorAll(".menu[open]").forEach((menu) => {
    if (menu !== kept) menu.open = false;
  });
  document.addEventListener("click", (event) => closeMenus(event.target.closest?.(".menu")));
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") closeMenus(); });

  // Replaces the rows, unless the focus or a selection is in them: a change must not slip away
  // under the pointer. Returns whether it did.
  const replace = (id, rows) => {
    const body = byId(id);
    const selection = getSelection();
    const isSelected = !selection.isCollapsed && body.contains(selection.anchorNode);
    if (isSelected || body.contains(document.activeElement) || body.matches(":hover")
      || body.querySelector(".menu[open]")) return false;
    body.replaceChildren(...rows());
    return true;
  };

  const send = async (path, body) => {
    const headers = { "Hotrow-Admin": "1" };
    if (body) headers["Content-Type"] = "application/json";
    if (token) headers.Authorization = `Bearer ${token}`;
    // Without stored credentials: a change needs the token of this page, and the browser's own
    // dialogue does not appear.
    const response = await fetch(path, {
      method: "POST", headers, body, credentials: "omit", signal: AbortSignal.timeout(5000),
    });
    if (response.ok) return;
    if (response.status === 401) {
      token = "";
      needsToken = true;
      throw new Error("The token is missing or wrong.");
    }
    const problem = await response.json().catch(() => ({}));
    throw new Error(problem.detail ?? `Status ${response.status}`);
  };

  const ask = (change) => {
    pendingChange = change;
    byId("change-title").textContent = change.title;
    byId("change-text").textContent = change.text;
    byId("change-do").textContent = change.verb;
    byId("change-error").textContent = "";
    byId("change-limit").hidden = !change.rule;
    byId("change-rate").value = change.rule?.rate ?? "";
    byId("change-burst").value = change.rule?.burst ?? "";
    byId("change-token-label").hidden = !needsToken || token !== "";
    byId("change-token").value = "";
    byId("change").showModal();
  };

  const limitBody = () => {
    const change = {};
    const [rate, burst] = [byId("change-rate").value.trim(), byId("change-burst").value.trim()];
    if (rate) change.rate = rate;
    if (burst) change.burst = Number(burst);
    return JSON.stringify(change);
  };

  byId("change").querySelector("form").addEventListener("submit", async (event) => {
    if (event.submitter?.value !== "do") return;
    event.preventDefault();
    if (byId("change-token").value) token = byId("change-token").value;
    byId("change-token").value = "";
    const change = pendingChange;
    byId("change-do").disabled = true;
    try {
      await send(change.path, change.rule ? limitBody() : undefined);
      byId("change").close();
      byId("done").textContent = `${change.done} (${charts.clock(Date.now() / 1000)})`;
    } catch (error) {
      byId("change-error").textContent = error.message;
      byId("change-token-label").hidden = !needsToken || token !== "";
    }
    byId("change-do").disabled = false;
  });

  const purge = (name, id, entries) => ask(id === null ? {
    title: `Purge all of ${name}?`,
    text: `${grouped(entries)} entries are dropped; each record is read from the database again `
      + "at its next request.",
    verb: "Purge", path: `purge/${encodeURIComponent(name)}`, done: `${name} was purged.`,
  } : {
    title: `Purge ${name}/${id}?`,
    text: "The entry is dropped and read from the database again at its next request.",
    // The id is percent-encoded as it comes.
    verb: "Purge", path: `purge/${encodeURIComponent(name)}/${id}`,
    done: `${name}/${id} was purged.`,
  });

  const last = (column) => column.at(-1) ?? null;

  const collections = (status, history) => replace("collections", () =>
    Object.entries(status.collections).map(([name, own]) => {
      const row = make("tr");
      const series = history.collections.get(name);
      const total = series ? series.memory.map((_, i) =>
        charts.sum([series.memory, series.database], i)) : [];
      const ratio = series ? series.memory.map((memory, i) =>
        (total[i] ? memory / total[i] : null)) : [];
      const head = make("th", "", name, row);
      head.scope = "row";
      const now = last(total);
      cell(row, "number", now === null ? "–" : perSecond(now));
      cell(row, "curve", spark(total, 0, Math.max(...total, 1)));
      const present = last(ratio);
      cell(row, "number", present === null ? "–" : percent(present));
      cell(row, "curve", spark(ratio, Math.min(0.9, ...ratio.filter((r) => r !== null)), 1));
      cell(row, "number", grouped(own.entries));
      cell(row, "number", bytes(own.bytes));
      cell(row, "number", grouped(own.waiting_keys));
      cell(row, "number", grouped(own.invalidations));
      cell(row, "number", grouped(own.evictions.capacity));
      cell(row, "", menu(name, () => purge(name, null, own.entries)));
      return row;
    }));

  const KEYS_SHOWN = 20;
  const keys = (document) => {
    byId("keys-section").hidden = !document.enabled;
    if (!document.enabled) return;
    const found = Object.entries(document.collections).flatMap(([name, own]) =>
      own.keys.map((key) => ({ name, ...key })));
    found.sort((a, b) => b.requests_per_s - a.requests_per_s);
    const shareMax = Math.max(...found.map((key) => key.share));
    byId("keys-note").textContent = found.length === 0
      ? "No key is requested much more often than the others." :
      "Estimated from samples; a request counts half after a minute. A share may be up to "
      + `${percent(Object.values(document.collections)[0].share_error_max)} too high.`;
    byId("keys").closest("div").hidden = found.length === 0;
    replace("keys", () => found.slice(0, KEYS_SHOWN).map((key) => {
      const row = make("tr");
      cell(row, "", key.name);
      cell(row, "id", key.id);
      cell(row, "number", percent(key.share));
      const meter = make("meter");
      meter.max = shareMax;
      meter.value = key.share;
      meter.setAttribute("aria-hidden", "true");
      cell(row, "bar", meter);
      cell(row, "number", perSecond(key.requests_per_s));
      cell(row, "", menu(`${key.name}/${key.id}`, () => purge(key.name, key.id, 1)));
      return row;
    }));
  };

  const rules = (limits) => {
    const found = Object.entries(limits);
    byId("rules-section").hidden = found.length === 0;
    replace("rules", () => found.map(([name, rule]) => {
      const row = make("tr");
      const head = make("th", "", name, row);
      head.scope = "row";
      cell(row, "", rule.per);
      cell(row, "", rule.kind);
      cell(row, "number", rule.rate);
      cell(row, "number", grouped(rule.burst));
      cell(row, "number", rule.keys === null ? "–" : grouped(rule.keys));
      cell(row, "number", grouped(rule.limited));
      cell(row, "", button("Change", `Change rule ${name}`, () => ask({
        title: `Change rule ${name}`,
        text: "The change holds until the process ends, or a reload finds the rule changed in the "
          + "file. Keys keep their tokens and debts.",
        verb: "Change", path: `limits/rate/${encodeURIComponent(name)}`,
        done: `Rule ${name} was changed.`, rule,
      })));
      return row;
    }));
  };

  return { collections, keys, rules, requireToken: (is) => { needsToken = is || needsToken; } };
})();
