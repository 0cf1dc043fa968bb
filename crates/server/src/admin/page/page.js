"use strict";
const $=id=>document.getElementById(id),n=x=>x.toLocaleString("en"),mib=b=>(b/1048576).toFixed(1);
let last=null,at=0;
function cell(row,text){const td=document.createElement("td");td.textContent=text;row.append(td)}
function tile(name,value,bad){const d=document.createElement("div"),t=document.createElement("dt"),v=document.createElement("dd");
 t.textContent=name;v.textContent=value;if(bad)v.className="bad";d.append(t,v);$("top").append(d)}
const requested=c=>c.hits+c.negative+c.misses+c.coalesced+c.stale+c.bypass;
function show(s,now){
 $("v").textContent=s.version+", up "+n(s.uptime_s)+" s";$("top").replaceChildren();
 for(const[name,source]of Object.entries(s.sources)){const f=source.feed;
  if(f.followed){tile("staleness",f.staleness_ms.toFixed(1)+" ms",!f.current);
  tile("feed",f.current?"follows":"behind: "+f.when_stale,!f.current)}
  else tile("feed","none: answers may be as old as their TTL",true);
  tile("changes",n(f.changes));tile("gaps",n(f.gaps),f.gaps>0);tile("position",f.position??"none");
  tile("source "+name,source.reachable?"reachable":"unreachable",!source.reachable);tile("queries",n(source.queries))}
 tile("cache",mib(s.cache.bytes)+" of "+mib(s.cache.capacity_bytes)+" MiB");
 tile("entries",n(s.cache.entries));tile("connections",n(s.connections));tile("requests waiting",n(s.requests.waiting));
 const rows=Object.entries(s.collections).map(([name,c])=>{const r=document.createElement("tr"),before=last&&last.collections[name];
  cell(r,name);cell(r,before?n(Math.round((requested(c)-requested(before))*1000/(now-at))):"");
  cell(r,c.hit_ratio===null?"":(100*c.hit_ratio).toFixed(2)+" %");
  for(const x of[c.hits,c.negative,c.misses,c.coalesced,c.stale,c.entries])cell(r,n(x));
  cell(r,mib(c.bytes));cell(r,n(c.evictions.capacity));cell(r,n(c.invalidations));cell(r,n(c.waiting_keys));return r});
 $("rows").replaceChildren(...rows);last=s;at=now}
async function tick(){try{const r=await fetch("status");if(!r.ok)throw new Error("status "+r.status);
 show(await r.json(),performance.now());$("error").textContent=""}catch(e){$("error").textContent="No answer: "+e.message}
 setTimeout(tick,1000)}
tick();
