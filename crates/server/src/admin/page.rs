//! `/`: a page of numbers that refreshes itself. It reads `/status`; nothing is loaded from elsewhere.

/// The page.
pub(super) const PAGE: &str = r##"<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>Hotrow</title><link rel="icon" href="data:,">
<style>
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;margin:1.5rem auto;max-width:70rem;padding:0 1rem}
h1{font-size:1.3rem;margin:0 0 1rem}h1 small{font-weight:normal;opacity:.6}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.75rem;margin:0 0 1.5rem}
dl div{border:1px solid color-mix(in srgb,currentColor 20%,transparent);border-radius:.5rem;padding:.5rem .75rem}
dt{font-size:.8rem;opacity:.7}dd{margin:0;font-size:1.15rem;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.wrap{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.35rem .6rem;text-align:right;border-bottom:1px solid color-mix(in srgb,currentColor 15%,transparent)}
th:first-child,td:first-child{text-align:left}th{font-size:.8rem;font-weight:600}
.bad{color:#c62828}@media(prefers-color-scheme:dark){.bad{color:#ff8a80}}
</style></head><body>
<h1>Hotrow <small id="v"></small></h1>
<dl id="top"></dl>
<div class="wrap"><table><thead><tr><th>collection<th>requests/s<th>hit ratio<th>hits<th>negative<th>misses<th>waits<th>stale<th>entries<th>MiB<th>evicted<th>invalidated<th>waiting</tr></thead><tbody id="rows"></tbody></table></div>
<p id="error" class="bad" role="status"></p>
<script>
"use strict";
const $=id=>document.getElementById(id),n=x=>x.toLocaleString("en"),mib=b=>(b/1048576).toFixed(1);
let last=null,at=0;
function cell(row,text){const td=document.createElement("td");td.textContent=text;row.append(td)}
function tile(name,value,bad){const d=document.createElement("div"),t=document.createElement("dt"),v=document.createElement("dd");
 t.textContent=name;v.textContent=value;if(bad)v.className="bad";d.append(t,v);$("top").append(d)}
const asked=c=>c.hits+c.negative+c.misses+c.waits+c.stale+c.bypass;
function show(s,now){
 $("v").textContent=s.version+", up "+n(s.uptime_s)+" s";$("top").replaceChildren();
 if(s.feed.followed){tile("staleness",s.feed.staleness_ms.toFixed(1)+" ms",!s.feed.current);
 tile("feed",s.feed.current?"follows":"behind: "+s.feed.when_stale,!s.feed.current)}
 else tile("feed","none: answers may be as old as their TTL",true);
 tile("changes",n(s.feed.changes));tile("losses",n(s.feed.losses),s.feed.losses>0);
 tile("source",s.source.reachable?"reachable":"unreachable",!s.source.reachable);
 tile("queries",n(s.source.queries));tile("cache",mib(s.cache.bytes)+" of "+mib(s.cache.capacity_bytes)+" MiB");
 tile("entries",n(s.cache.entries));tile("connections",n(s.connections));tile("requests waiting",n(s.requests.waiting));
 tile("position",s.feed.position??"none");
 const rows=Object.entries(s.collections).map(([name,c])=>{const r=document.createElement("tr"),before=last&&last.collections[name];
  cell(r,name);cell(r,before?n(Math.round((asked(c)-asked(before))*1000/(now-at))):"");
  cell(r,c.hit_ratio===null?"":(100*c.hit_ratio).toFixed(2)+" %");
  for(const x of[c.hits,c.negative,c.misses,c.waits,c.stale,c.entries])cell(r,n(x));
  cell(r,mib(c.bytes));cell(r,n(c.evictions.capacity));cell(r,n(c.invalidations));cell(r,n(c.waiting_keys));return r});
 $("rows").replaceChildren(...rows);last=s;at=now}
async function tick(){try{const r=await fetch("status");if(!r.ok)throw new Error("status "+r.status);
 show(await r.json(),performance.now());$("error").textContent=""}catch(e){$("error").textContent="No answer: "+e.message}
 setTimeout(tick,1000)}
tick();
</script></body></html>
"##;
