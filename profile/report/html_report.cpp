#include "profile/report/html_report.h"

#include <algorithm>
#include <string_view>

#include "core/error.h"
#include "profile/analysis/breakdown.h"
#include "profile/analysis/steps.h"
#include "profile/report/csv_report.h"
#include "profile/report/data_table.h"
#include "profile/report/json_writer.h"
#include "profile/report/table.h"
#include "profile/report/text_report.h"
#include "profile/report/timeline.h"

namespace ms::profile {
namespace {

using core::cat;

constexpr size_t kColumns = 1200, kMaxLanes = 96, kMaxSlices = 20'000;
constexpr int64_t kTableRows = 60;     // of each rank in long tables
constexpr size_t kMaxInstances = 400;  // of the heat map

constexpr std::string_view kStyle = R"css(
:root{--ink:#1b2430;--dim:#5d6b7c;--paper:#ffffff;--line:#d8dee6;--soft:#f3f5f8;--c0:#2a6fb0;--c1:#d9822b;--c2:#5b9a55;--c3:#8b8fa3;--c4:#e4e8ee}
@media (prefers-color-scheme: dark){:root{--ink:#e6eaf0;--dim:#9aa7b8;--paper:#14181e;--line:#2d3641;--soft:#1c222a;--c0:#5aa2e6;--c1:#f0a35a;--c2:#85c47e;--c3:#8d93ab;--c4:#262e38}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1240px;padding:1.5rem;color:var(--ink);background:var(--paper);font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:0 0 .2rem}h2{font-size:1.1rem;margin:2rem 0 .5rem;border-bottom:1px solid var(--line);padding-bottom:.2rem}
p.sub{color:var(--dim);margin:.1rem 0 1rem}
pre{background:var(--soft);padding:.8rem 1rem;overflow:auto;white-space:pre-wrap;border-radius:6px;font-size:13px}
.scroll{overflow:auto;max-height:28rem;border:1px solid var(--line);border-radius:6px}
table{border-collapse:collapse;font-size:13px;width:100%}
th,td{padding:.25rem .6rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
th{position:sticky;top:0;background:var(--soft);font-weight:600}.js th{cursor:pointer}
th.text,td.text{text-align:left}
.bar{display:flex;height:1.1rem;border-radius:3px;overflow:hidden;background:var(--c4);margin:.15rem 0}
.bar span{display:block;height:100%}
.row{display:grid;grid-template-columns:6rem 1fr 5rem;gap:.6rem;align-items:center;font-size:13px}
.row b{font-weight:500;text-align:right}.row i{font-style:normal;color:var(--dim)}
.k0{background:var(--c0)}.k1{background:var(--c1)}.k2{background:var(--c2)}.k3{background:var(--c3)}
.k1s{background:repeating-linear-gradient(45deg,var(--c1) 0 6px,transparent 6px 8px),var(--c1)}
.legend{font-size:13px;color:var(--dim);margin:.4rem 0}.legend span{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;margin:0 .3rem 0 .9rem;vertical-align:-1px}
canvas{width:100%;height:420px;border:1px solid var(--line);border-radius:6px;touch-action:none;display:none}.js canvas{display:block}
.tools{display:none;gap:.5rem;margin:.4rem 0;font-size:13px}.js .tools{display:flex}
input,button{font:inherit;color:inherit;background:var(--soft);border:1px solid var(--line);border-radius:4px;padding:.2rem .6rem}
#tip{font-size:13px;color:var(--dim);min-height:1.5em}
.heat{display:grid;gap:1px;font-size:11px}.heat div{height:1rem}
@media print{body{max-width:none}.scroll{max-height:none;overflow:visible}.tools,canvas{display:none!important}h2{break-after:avoid}}
)css";

constexpr std::string_view kScript = R"js(
(function(){
'use strict';
document.documentElement.classList.add('js');
document.querySelectorAll('table.sortable th').forEach(function(th){
  th.setAttribute('tabindex','0');
  function sort(){
    var table=th.closest('table'),body=table.tBodies[0],n=Array.prototype.indexOf.call(th.parentNode.children,th);
    var up=th.getAttribute('aria-sort')!=='descending';
    Array.prototype.forEach.call(th.parentNode.children,function(o){o.removeAttribute('aria-sort');});
    th.setAttribute('aria-sort',up?'descending':'ascending');
    var rows=Array.prototype.slice.call(body.rows);
    rows.sort(function(a,b){
      var x=a.cells[n].textContent,y=b.cells[n].textContent,p=parseFloat(x),q=parseFloat(y);
      var d=isNaN(p)||isNaN(q)?x.localeCompare(y):p-q;
      return up?-d:d;
    });
    rows.forEach(function(r){body.appendChild(r);});
  }
  th.addEventListener('click',sort);
  th.addEventListener('keydown',function(e){if(e.key==='Enter')sort();});
});
var data=JSON.parse(document.getElementById('timeline').textContent),canvas=document.getElementById('view');
if(!canvas||!data.lanes.length)return;
var tip=document.getElementById('tip'),query='',from=0,to=data.span,scroll=0,left=150,high=16,axis=22,drag=null;
var style=getComputedStyle(document.documentElement);
function color(k){return style.getPropertyValue('--c'+k).trim();}
function text(us){return us>=1e6?(us/1e6).toFixed(3)+' s':us>=1e3?(us/1e3).toFixed(3)+' ms':us.toFixed(3)+' us';}
function draw(){
  var ratio=window.devicePixelRatio||1,w=canvas.clientWidth,h=canvas.clientHeight;
  canvas.width=w*ratio;canvas.height=h*ratio;
  var g=canvas.getContext('2d');g.scale(ratio,ratio);g.clearRect(0,0,w,h);g.font='11px system-ui';
  var scale=(w-left)/(to-from),ink=style.getPropertyValue('--ink').trim(),dim=style.getPropertyValue('--dim').trim();
  g.fillStyle=dim;
  for(var t=0;t<6;t++){var at=from+(to-from)*t/6;g.fillText(text(at),left+(at-from)*scale+2,14);}
  var detail=(to-from)<data.span/4;
  data.lanes.forEach(function(lane,i){
    var y=axis+i*(high+2)-scroll;if(y<axis-high||y>h)return;
    g.fillStyle=ink;g.fillText(lane.label.slice(0,24),4,y+12);
    var n=lane.share.length,width=data.span/n;
    for(var c=0;c<n;c++){
      var s=lane.share.charCodeAt(c)-48;if(!s)continue;
      var x=left+(c*width-from)*scale,x2=left+((c+1)*width-from)*scale;
      if(x2<left||x>w)continue;
      g.globalAlpha=(detail?0.12:0.25)+(detail?0.1:0.75)*s/9;g.fillStyle=color(lane.klass.charCodeAt(c)-48);
      g.fillRect(Math.max(x,left),y,Math.max(x2-Math.max(x,left),0.6),high);
    }
    g.globalAlpha=1;
  });
  data.slices.forEach(function(s){
    var x=left+(s[1]-from)*scale,width=s[2]*scale,y=axis+s[0]*(high+2)-scroll;
    var hit=query&&data.names[s[3]].toLowerCase().indexOf(query)>=0;
    if(x+width<left||x>w||y<axis-high||y>h||(!detail&&!hit))return;
    var begin=Math.max(x,left);
    g.globalAlpha=query&&!hit?0.2:1;g.fillStyle=color(s[4]);g.fillRect(begin,y,Math.max(x+width-begin,0.8),high);
    if(hit){g.strokeStyle=ink;g.strokeRect(begin,y,Math.max(x+width-begin,1),high);}
    g.globalAlpha=1;
    if(width>60){g.fillStyle=style.getPropertyValue('--paper').trim();g.save();g.beginPath();g.rect(begin,y,x+width-begin,high);g.clip();g.fillText(data.names[s[3]],begin+3,y+12);g.restore();}
  });
  canvas.setAttribute('data-from',from);canvas.setAttribute('data-to',to);
}
function zoom(factor,center){
  var span=Math.min(data.span,Math.max(0.01,(to-from)*factor));
  from=Math.max(0,Math.min(data.span-span,center-(center-from)*span/(to-from)));to=from+span;draw();
}
function at(e){var b=canvas.getBoundingClientRect();return from+(e.clientX-b.left-left)/(b.width-left)*(to-from);}
canvas.addEventListener('wheel',function(e){e.preventDefault();if(e.shiftKey){scroll=Math.max(0,scroll+e.deltaY);draw();}else zoom(e.deltaY>0?1.25:0.8,at(e));},{passive:false});
canvas.addEventListener('pointerdown',function(e){drag=[e.clientX,from,to,e.clientY,scroll];canvas.setPointerCapture(e.pointerId);});
canvas.addEventListener('pointerup',function(){drag=null;});
canvas.addEventListener('pointermove',function(e){
  if(drag){
    var moved=(e.clientX-drag[0])/(canvas.clientWidth-left)*(drag[2]-drag[1]),span=drag[2]-drag[1];
    from=Math.max(0,Math.min(data.span-span,drag[1]-moved));to=from+span;scroll=Math.max(0,drag[4]-(e.clientY-drag[3]));draw();return;
  }
  var b=canvas.getBoundingClientRect(),lane=Math.floor((e.clientY-b.top-axis+scroll)/(high+2)),time=at(e),found=null;
  data.slices.forEach(function(s){if(s[0]===lane&&s[1]<=time&&time<s[1]+s[2])found=s;});
  tip.textContent=found?data.names[found[3]]+', '+text(found[2])+' at '+text(found[1]):data.lanes[lane]?data.lanes[lane].label:'';
});
document.getElementById('find').addEventListener('input',function(e){query=e.target.value.toLowerCase();draw();});
document.getElementById('in').addEventListener('click',function(){zoom(0.5,(from+to)/2);});
document.getElementById('out').addEventListener('click',function(){zoom(2,(from+to)/2);});
document.getElementById('all').addEventListener('click',function(){from=0;to=data.span;scroll=0;draw();});
window.addEventListener('resize',draw);draw();
})();
)js";

std::string percent_of(int64_t part, int64_t whole) {
  return whole <= 0 ? "0" : fixed(100.0 * static_cast<double>(part) / static_cast<double>(whole), 3);
}

std::string section(std::string_view title, const std::string& body) {
  return body.empty() ? std::string() : cat("<h2>", html_text(title), "</h2>\n", body);
}

std::string breakdown_bars(const Results& results) {
  std::string out;
  for (const RankResults& rank : results.ranks) {
    const auto* times = rank.get<Breakdown>();
    if (times == nullptr) continue;
    const Breakdown& b = *times;
    out += cat("<div class=\"row\"><b>rank ", rank.rank, "</b><div class=\"bar\" role=\"img\" aria-label=\"computing ",
               percent_of(b.computing, b.span), " %, exposed communication ",
               percent_of(b.exposed_communication, b.span), " %, exposed memory ", percent_of(b.exposed_memory, b.span),
               " %, idle ", percent_of(b.idle, b.span), " %\">");
    const std::pair<const char*, int64_t> parts[] = {
        {"k0", b.computing}, {"k1 k1s", b.exposed_communication}, {"k2", b.exposed_memory}};
    for (const auto& [klass, ns] : parts) {
      out += cat("<span class=\"", klass, "\" style=\"width:", percent_of(ns, b.span), "%\"></span>");
    }
    out += cat("</div><i>", milliseconds(b.span), " ms</i></div>\n");
  }
  if (out.empty()) return out;
  return "<p class=\"legend\"><span class=\"k0\"></span>computing<span class=\"k1\"></span>exposed communication"
         "<span class=\"k2\"></span>exposed memory<span style=\"background:var(--c4)\"></span>idle</p>\n" +
         out;
}

std::string step_series(const Results& results) {
  int64_t longest = 0;
  for (const RankResults& rank : results.ranks) {
    for (const StepRow& row : rank.at<RankSteps>().rows) longest = std::max(longest, row.host_ns);
  }
  std::string out;
  constexpr size_t kMostSteps = 100;
  for (const RankResults& rank : results.ranks) {
    for (size_t i = 0; i < std::min(rank.at<RankSteps>().rows.size(), kMostSteps); ++i) {
      const StepRow& row = rank.at<RankSteps>().rows[i];
      out += cat(
          "<div class=\"row\"><b>", rank.rank, " / ", row.step,
          "</b><div class=\"bar\" style=\"background:none\"><span class=\"k0\" style=\"width:",
          percent_of(row.times.computing, longest), "%\"></span><span class=\"k1 k1s\" style=\"width:",
          percent_of(row.times.communication_not_overlapped, longest),
          "%\"></span><span style=\"background:var(--c4);width:",
          percent_of(std::max<int64_t>(0, row.host_ns - row.times.computing - row.times.communication_not_overlapped),
                     longest),
          "%\"></span></div><i>", milliseconds(row.host_ns), " ms</i></div>\n");
    }
    if (out.size() > 200'000) break;
  }
  return out.empty() ? out
                     : "<p class=\"sub\">rank / step; length: time of the step on the host</p>\n<div class=\"scroll\" "
                       "style=\"padding:.5rem\">" +
                           out + "</div>\n";
}

// Rank x instance: how long each rank waited at each collective.
std::string heat_map(const CrossRank& cross) {
  if (cross.rows.empty()) return {};
  int64_t most = 1;
  const size_t shown = std::min(cross.rows.size(), kMaxInstances);
  for (size_t i = 0; i < shown; ++i) {
    for (const WaitRow::Member& member : cross.rows[i].members) most = std::max(most, member.wait);
  }
  std::string out =
      cat("<p class=\"sub\">a row a rank, a column a collective in time order; full colour: ", milliseconds(most),
          " ms of waiting</p><div class=\"scroll\" style=\"padding:.5rem\">");
  for (const int rank : cross.ranks) {
    out += cat("<div class=\"heat\" style=\"grid-template-columns:4rem repeat(", shown, ",minmax(3px,1fr))\"><span>",
               rank, "</span>");
    for (size_t i = 0; i < shown; ++i) {
      const auto& members = cross.rows[i].members;
      const auto found = std::find_if(members.begin(), members.end(), [&](const auto& m) { return m.rank == rank; });
      const int64_t wait = found == members.end() ? 0 : found->wait;
      out += cat("<div class=\"k1\" style=\"opacity:",
                 fixed(0.05 + 0.95 * static_cast<double>(wait) / static_cast<double>(most), 2), "\"></div>");
    }
    out += "</div>\n";
  }
  return out + "</div>\n";
}

// Inside <script> nothing may look like its end: every '<' is written as an escape.
std::string for_script(const std::string& json) {
  std::string out;
  for (const char c : json) out += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return out;
}

std::string timeline_json(const Timeline& timeline) {
  JsonWriter json(false);
  json.begin_object();
  json.key("span").us(timeline.end > timeline.start ? timeline.end - timeline.start : 0);
  json.key("lanes").begin_array();
  for (const TimelineLane& lane : timeline.lanes) {
    json.begin_object();
    json.key("label").value(cat(lane.rank, lane.device ? " " : " host ", lane.name));
    std::string share, klass;
    for (const uint8_t s : lane.share) share += static_cast<char>('0' + s);
    for (const uint8_t k : lane.klass) klass += static_cast<char>('0' + k);
    json.key("share").value(share);
    json.key("klass").value(klass);
    json.end_object();
  }
  json.end_array();
  json.key("names").begin_array();
  for (const std::string& name : timeline.names) json.value(name);
  json.end_array();
  json.key("slices").begin_array();
  for (const TimelineSlice& slice : timeline.slices) {
    json.begin_array();
    json.value(int64_t{slice.lane});
    json.us(slice.start - timeline.start);
    json.us(slice.dur);
    json.value(int64_t{slice.name});
    json.value(int64_t{slice.klass});
    json.end_array();
  }
  json.end_array();
  json.end_object();
  return json.take();
}

}  // namespace

std::string html_report(const Store& store, const Results& results, const std::vector<std::string>& inputs) {
  const std::string title =
      inputs.empty() ? "traces" : cat(inputs[0], inputs.size() > 1 ? cat(" and ", inputs.size() - 1, " more") : "");
  std::vector<RankDevices> devices;
  for (size_t r = 0; r < store.ranks.size(); ++r) devices.push_back({store.ranks[r].get(), &results.views[r]});
  const Timeline timeline = make_timeline(devices, kColumns, kMaxLanes, kMaxSlices);

  std::string out = cat(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n<title>",
      html_text(title), "</title>\n<style>", kStyle, "</style>\n</head>\n<body>\n<h1>", html_text(title),
      "</h1>\n<p class=\"sub\">msprof report: ", store.ranks.size(), store.ranks.size() == 1 ? " rank, " : " ranks, ",
      store.files.size(), store.files.size() == 1 ? " file" : " files", "</p>\n");
  out += section("Findings", cat("<pre>", html_text(analyze_text(store, results, inputs)), "</pre>\n"));
  out += section("Where device time goes", breakdown_bars(results));
  out += section("Steps", step_series(results));
  if (!timeline.lanes.empty()) {
    out += section(
        "Timeline",
        "<div class=\"tools\"><input id=\"find\" type=\"search\" placeholder=\"search names\" aria-label=\"search "
        "names\"><button id=\"in\">zoom in</button><button id=\"out\">zoom out</button><button id=\"all\">all</button>"
        "</div>\n<canvas id=\"view\" aria-label=\"timeline\"></canvas>\n<p id=\"tip\"></p>\n<p class=\"sub\">Wheel "
        "zooms, "
        "dragging pans. Single events are those of the slowest and the median step.</p>\n");
  }
  out += section("Waiting at collectives", heat_map(results.at<CrossRank>()));
  constexpr size_t kMaxTableBytes = 600'000;
  for (const DataTable& table : tables_of(store, results, kTableRows)) {
    const std::string html = table.html();
    out += section(table.title(), html.size() > kMaxTableBytes
                                      ? cat("<p>", table.size(), " rows: msprof --csv holds them</p>\n")
                                      : cat("<div class=\"scroll\">", html, "</div>\n"));
  }
  std::string losses;
  for (const std::string& line : store.stats.lines()) losses += html_text(line) + "\n";
  for (const std::string& line : results.warnings) losses += html_text(line) + "\n";
  out += section("What import met", losses.empty() ? "<p>Nothing was lost.</p>\n" : cat("<pre>", losses, "</pre>\n"));
  out += cat("<script type=\"application/json\" id=\"timeline\">", for_script(timeline_json(timeline)),
             "</script>\n<script>", kScript, "</script>\n</body>\n</html>\n");
  return out;
}

}  // namespace ms::profile
