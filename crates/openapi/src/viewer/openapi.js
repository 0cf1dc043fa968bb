// Shows /openapi.json, and where it is not served the list of collections at /. Every text is set
// as text, never as markup.
"use strict";

const main = document.querySelector("main");
const about = document.querySelector("#about");
const find = document.querySelector("#find");

function element(name, text, ...children) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  made.append(...children);
  return made;
}

function link(path, text = path) {
  const made = element("a", text);
  // Behind a proxy the paths may begin with another one.
  made.href = path.replace(/^\//, "");
  return made;
}

async function json(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  const isJson = (answer.headers.get("content-type") || "").startsWith("application/json");
  return answer.ok && isJson ? answer.json() : null;
}

// Returns what a reference leads to.
function resolved(description, value) {
  if (!value || !value.$ref) return value || {};
  return value.$ref.slice(2).split("/").reduce(
    (at, name) => at[name.replaceAll("~1", "/").replaceAll("~0", "~")], description);
}

// Describes the values of a schema in a few words.
function words(description, schema) {
  const name = schema.$ref && schema.$ref.split("/").pop();
  if (name) return name;
  const parts = [];
  const inner = (one) => words(description, one);
  const quoted = (value) => JSON.stringify(value);
  if (schema.enum) parts.push(`one of ${schema.enum.map(quoted).join(", ")}`);
  else if (schema.anyOf) parts.push(schema.anyOf.map(inner).join(" or "));
  else if (schema.type === "array" && schema.prefixItems) {
    parts.push(schema.prefixItems.map(inner).join(", "));
  } else if (schema.type === "array") {
    parts.push(`list of ${words(description, schema.items || {})}`);
  } else parts.push([schema.type || "any JSON"].flat().join(" or "));
  if (schema.format) parts.push(schema.format);
  if (schema.contentEncoding) parts.push(schema.contentEncoding);
  if (schema.maxItems) parts.push(`at most ${schema.maxItems}`);
  if (schema.pattern && !schema.format) parts.push(`pattern ${schema.pattern}`);
  const [example] = schema.examples || [];
  if (typeof example === "string") parts.push(`as ${example}`);
  return parts.join("; ");
}

// Returns a table of names, each with some words.
function table(rows) {
  const cells = ([name, text, more]) => {
    const second = element("td", text);
    if (more) second.append(element("div", undefined, element("span", more)));
    return element("tr", undefined, element("td", undefined, element("code", name)), second);
  };
  return element("table", undefined, ...rows.map(cells));
}

function curl(base, path, item, operation) {
  const parameters = [...(item.parameters || []), ...operation.parameters];
  const text = (value) => [value].flat(2).join(",");
  let url = path;
  const query = [];
  for (const { name, in: place, example } of parameters) {
    if (place === "path") url = url.replace(`{${name}}`, text(example));
    if (place === "query" && example !== undefined) query.push(`${name}=${text(example)}`);
  }
  if (query.length) url += `?${query.join("&")}`;
  const body = operation.requestBody && operation.requestBody.content["application/json"].example;
  const data = body ? ` -d '${JSON.stringify(body)}'` : "";
  return `curl${data} '${base}${url}'`;
}

function operationOf(description, base, path, method, item) {
  const operation = item[method];
  const summary = element("summary", undefined, element("b", method.toUpperCase()),
    element("code", path), element("span", ` ${operation.summary}`));
  const content = element("div");
  content.append(element("pre", curl(base, path, item, operation)));
  const parameters = [...(item.parameters || []), ...operation.parameters];
  if (parameters.length) {
    const row = (one) => [one.name + (one.required ? " *" : ""),
      one.description || "", `${one.in}: ${words(description, one.schema)}`];
    content.append(element("h3", "Parameters (* required)"), table(parameters.map(row)));
  }
  const answers = Object.entries(operation.responses).map(([status, answer]) => {
    const { description: meaning, headers } = resolved(description, answer);
    return [status, meaning, headers && `headers: ${Object.keys(headers).join(", ")}`];
  });
  content.append(element("h3", "Answers"), table(answers));
  return element("details", undefined, summary, content);
}

function recordOf(description, name) {
  const schema = description.components.schemas[name];
  if (!schema) return [];
  const fields = Object.entries(schema.properties || {}).map(([field, value]) =>
    [field, words(description, value)]);
  const content = element("div", undefined, table(fields));
  if (schema.description) content.prepend(element("p", schema.description));
  for (const example of schema.examples || []) {
    content.append(element("pre", JSON.stringify(example, null, 2)));
  }
  const summary = element("summary", undefined, element("b", "Fields"),
    element("span", "of a record"));
  return [element("details", undefined, summary, content)];
}

function show(description) {
  const server = (description.servers || [])[0];
  const base = server ? server.url : new URL(".", location.href).href.replace(/\/$/, "");
  about.textContent = `${description.info.description} Version ${description.info.version}. `;
  about.append(link("/openapi.json", "OpenAPI 3.1"), " · ",
    link("/docs/reference/errors.md", "errors"));
  const sections = new Map();
  const paths = Object.entries(description.paths);
  // Changes, whose paths begin with an underscore, last.
  paths.sort(([one], [other]) => one.startsWith("/_") - other.startsWith("/_"));
  for (const [path, item] of paths) {
    for (const method of ["get", "post"].filter((name) => item[name])) {
      const [name] = item[method].tags;
      if (!sections.has(name)) {
        sections.set(name, element("section", undefined, element("h2", name),
          ...recordOf(description, name)));
      }
      sections.get(name).append(operationOf(description, base, path, method, item));
    }
  }
  main.append(...sections.values());
  offerFind([...sections]);
}

// Shows of many collections those whose names contain a text. `named`: names with elements.
function offerFind(named) {
  find.hidden = named.length < 8;
  find.addEventListener("input", (event) => {
    const wanted = event.target.value.trim().toLowerCase();
    for (const [name, shown] of named) shown.hidden = !name.toLowerCase().includes(wanted);
  });
}

function list({ collections, errors }) {
  about.textContent = collections.length ? "Collections that you may read. " : "There is none. ";
  about.append(link(errors, "errors"));
  const isPath = (value) => typeof value === "object" || value.startsWith("/");
  const links = (one) => Object.values(one).filter(isPath).flatMap((value) =>
    typeof value === "object" ? links(value) : [element("div", undefined, link(value))]);
  const rows = collections.map((one) => [one.name, element("tr", undefined,
    element("td", one.name), element("td", undefined, element("code", undefined, ...links(one))))]);
  main.append(element("table", undefined, ...rows.map(([, row]) => row)));
  offerFind(rows);
}

async function load() {
  const description = await json("openapi.json");
  if (description) return show(description);
  const index = await json("./");
  if (!index) throw new Error("neither openapi.json nor the list of collections is served here");
  return list(index);
}

load().catch((error) => { about.textContent = `Cannot be shown: ${error.message}`; });
