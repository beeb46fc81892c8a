// Charts of data-charts (report_data.h): steps, curves, kernels across ranks, waits. Each keeps the order of the ranks in
// the data: the most important first.
var SVG = (function () {  // the namespace, without an address in the page
  var parsed = document.createElement('div');
  parsed.innerHTML = '<svg></svg>';
  return parsed.firstChild.namespaceURI;
})();
var MOST_RANKS = 6;  // drawn below each other when all are chosen

function element(parent, name, attributes, text) {
  var made = document.createElementNS(SVG, name);
  Object.keys(attributes).forEach(function (key) { made.setAttribute(key, attributes[key]); });
  if (text !== undefined) made.textContent = text;
  parent.appendChild(made);
  return made;
}
function picture(plot, height, label) {
  var width = Math.max(320, plot.clientWidth || plot.parentNode.clientWidth || 900);
  var svg = element(plot, 'svg', {width: width, height: height, role: 'img', 'aria-label': label});
  return {svg: svg, width: width, height: height};
}
function ranksToDraw(rank, has) {
  var with_data = charts.ranks.filter(has);
  return rank === 'all' ? with_data.slice(0, MOST_RANKS) : with_data.filter(function (r) { return r.rank === rank; });
}
// Empties a figure, and hides it if nothing is to be drawn.
function plotOf(id, any) {
  var figure = byId(id);
  if (!figure) return null;
  figure.hidden = !any;
  var plot = figure.querySelector('.plot');
  plot.textContent = '';
  return any ? plot : null;
}

var STEP_PARTS = [['computing', 'k0'], ['exposed communication', 'k1'], ['exposed memory', 'k2'], ['idle', 'k3'],
                  ['before the first and after the last device event', 'k4']];

function drawSteps(rank) {
  var ranks = ranksToDraw(rank, function (r) { return r.steps.length > 0; });
  var plot = plotOf('steps-chart', ranks.length > 0);
  if (!plot) return;
  var legend = document.createElement('p');
  legend.className = 'legend';
  STEP_PARTS.forEach(function (part) {
    var patch = document.createElement('span');
    patch.className = part[1];
    legend.append(patch, part[0] + ' ');
  });
  plot.append(legend);
  var longest = Math.max.apply(null, ranks.map(function (r) {
    return Math.max.apply(null, r.steps.map(function (s) { return Math.max(s[1], s[2]); }));
  }));
  ranks.forEach(function (r) {
    var p = picture(plot, 160, 'steps of rank ' + r.rank), left = 80, top = 26, bottom = 20;
    var high = p.height - top - bottom, wide = Math.min(46, (p.width - left - 8) / r.steps.length);
    element(p.svg, 'text', {x: left, y: 14, 'class': 'label'}, 'rank ' + r.rank +
            (r.steps.length < r.steps_in_trace ? ': the first ' + r.steps.length + ' of ' + r.steps_in_trace + ' steps' : ''));
    [0, 0.5, 1].forEach(function (share) {
      var y = top + high * (1 - share);
      element(p.svg, 'line', {x1: left, x2: p.width, y1: y, y2: y, 'class': 'grid'});
      element(p.svg, 'text', {x: left - 6, y: y + 4, 'class': 'axis end'}, milliseconds(longest * share));
    });
    r.steps.forEach(function (s, i) {
      var values = s.slice(3, 7).concat([Math.max(0, s[1] - s[2])]), y = top + high;
      var group = element(p.svg, 'g', {});
      element(group, 'title', {}, 'step ' + s[0] + ': ' + milliseconds(s[1]) + ' on the host; ' +
              values.map(function (v, k) { return STEP_PARTS[k][0] + ' ' + milliseconds(v); }).join(', '));
      values.forEach(function (v, k) {
        var h = high * v / longest;
        y -= h;
        if (h > 0) element(group, 'rect', {x: left + i * wide + 1, y: y, width: Math.max(0.5, wide - 2), height: h, 'class': STEP_PARTS[k][1]});
      });
      var every = Math.ceil(34 / wide);
      if (i % every === 0) element(p.svg, 'text', {x: left + (i + 0.5) * wide, y: p.height - 5, 'class': 'axis middle'}, s[0]);
    });
  });
}

function drawCurves(id, unit, rank) {
  function curves(r) { return r.curves.filter(function (c) { return c.unit === unit; }); }
  var ranks = ranksToDraw(rank, function (r) { return curves(r).length > 0; });
  var plot = plotOf(id, ranks.length > 0);
  if (!plot) return;
  ranks.forEach(function (r) {
    var all = curves(r).map(function (c) {
      var t = 0;
      return {name: c.name, points: c.t.map(function (d, i) { t += d; return [t, c.v[i]]; })};
    });
    var most = 0, last = 1;
    all.forEach(function (c) {
      c.points.forEach(function (q) { most = Math.max(most, q[1]); last = Math.max(last, q[0]); });
    });
    var p = picture(plot, 150, r.rank + ': ' + all.map(function (c) { return c.name; }).join(', ')), left = 80, top = 24, bottom = 20;
    var high = p.height - top - bottom, wide = p.width - left - 70;
    element(p.svg, 'text', {x: 0, y: 12, 'class': 'label'}, 'rank ' + r.rank);
    [0, 0.5, 1].forEach(function (share) {
      var y = top + high * (1 - share);
      element(p.svg, 'line', {x1: left, x2: left + wide, y1: y, y2: y, 'class': 'grid'});
      element(p.svg, 'text', {x: left - 6, y: y + 4, 'class': 'axis end'}, amount(Math.round(most * share), unit));
      element(p.svg, 'text', {x: left + wide * share, y: p.height - 5, 'class': 'axis middle'}, time(Math.round(last * share)));
    });
    all.forEach(function (c, k) {
      var path = '';
      c.points.forEach(function (q) {
        var px = (left + wide * q[0] / last).toFixed(1), py = (top + high * (1 - Math.max(0, q[1]) / most)).toFixed(1);
        path += path ? 'H' + px + 'V' + py : 'M' + px + ' ' + py;
      });
      path += 'H' + (left + wide);
      element(element(p.svg, 'path', {d: path, 'class': 'curve s' + k}), 'title', {}, c.name);
      var label = element(p.svg, 'text', {x: left + k * 220, y: 12, 'class': 'label t' + k}, '\u2014 ' + c.name);
      element(label, 'title', {}, c.name);
    });
  });
}

function drawSpread(rank) {
  var plot = plotOf('spread-chart', charts.kernels.length > 0);
  if (!plot) return;
  var line = 22, p = picture(plot, charts.kernels.length * line + 4, 'time of kernels across ranks');
  var left = Math.min(340, p.width * 0.36), right = 190, wide = p.width - left - right;
  charts.kernels.forEach(function (k, i) {
    var y = i * line + line / 2, most = k.spread[4] || 1, mark = 'c' + k['class'];
    function x(ns) { return left + wide * ns / most; }
    var name = element(p.svg, 'text', {x: left - 10, y: y + 4, 'class': 'axis end name'},
                       k.name.length > left / 6.6 ? k.name.slice(0, Math.floor(left / 6.6) - 1) + '\u2026' : k.name);
    element(name, 'title', {}, k.name);
    element(p.svg, 'line', {x1: x(k.spread[0]), x2: x(k.spread[4]), y1: y, y2: y, 'class': 'whisker'});
    element(p.svg, 'rect', {x: x(k.spread[1]), y: y - 6, width: Math.max(1, x(k.spread[3]) - x(k.spread[1])), height: 12, 'class': 'box ' + mark});
    element(p.svg, 'line', {x1: x(k.spread[2]), x2: x(k.spread[2]), y1: y - 8, y2: y + 8, 'class': 'median'});
    k.at.forEach(function (ns, r) {
      if (ns < 0) return;
      var dot = element(p.svg, 'circle', {cx: x(ns), cy: y, r: charts.ranks[r].rank === rank ? 5 : 2.5,
                                          'class': charts.ranks[r].rank === rank ? 'dot chosen' : 'dot'});
      element(dot, 'title', {}, 'rank ' + charts.ranks[r].rank + ': ' + milliseconds(ns));
    });
    element(p.svg, 'text', {x: p.width - right + 10, y: y + 4, 'class': 'axis'},
            milliseconds(k.spread[2]) + ' \u2192 ' + milliseconds(k.spread[4]));
  });
}

function drawWaits(rank) {
  var waits = charts.waits, columns = waits.rows.length ? waits.rows[0].length : 0;
  var plot = plotOf('waits-chart', waits.rows.length > 1 && columns > 0 && waits.most > 0);
  if (!plot) return;
  var order = charts.ranks.map(function (r, i) { return i; });
  order.sort(function (a, b) { return charts.ranks[a].rank - charts.ranks[b].rank; });
  var line = order.length > 24 ? 10 : 18, p = picture(plot, order.length * line + 22, 'waiting of each rank at each collective');
  var left = 60, wide = (p.width - left) / columns;
  order.forEach(function (index, row) {
    var own = charts.ranks[index].rank === rank;
    if (line > 10 || row % 4 === 0 || own) {
      element(p.svg, 'text', {x: left - 8, y: row * line + line - 4, 'class': own ? 'axis end own' : 'axis end'}, charts.ranks[index].rank);
    }
    // One path for each of the ten depths: tens of thousands of rectangles would be slow.
    var paths = {};
    waits.rows[index].split('').forEach(function (digit, c) {
      var x = left + c * wide, w = Math.max(0.5, wide - (wide > 4 ? 1 : 0));
      paths[digit] = (paths[digit] || '') + 'M' + x.toFixed(1) + ' ' + row * line + 'h' + w.toFixed(1) + 'v' + (line - 1) + 'h-' + w.toFixed(1) + 'z';
    });
    Object.keys(paths).forEach(function (digit) {
      element(p.svg, 'path', {d: paths[digit], 'class': 'wait', 'fill-opacity': digit === '0' ? 0.06 : 0.15 + 0.85 * digit / 9});
    });
  });
  element(p.svg, 'text', {x: left, y: p.height - 4, 'class': 'axis'}, 'darkest: ' + milliseconds(waits.most) +
          (columns < waits.collectives ? '; the first ' + columns + ' of ' + waits.collectives + ' collectives' : ''));
}

function drawExperts() {
  var map = charts.experts, rows = map.rows, columns = rows.length ? rows[0].load.length : 0;
  var plot = plotOf('experts-chart', columns > 0 && map.most > 0);
  if (!plot) return;
  var line = rows.length > 40 ? 9 : 18, p = picture(plot, rows.length * line + 40, 'load of each expert of each layer');
  var waits = rows.some(function (r) { return r.wait > 0; });
  var left = 90, wide = (p.width - left - (waits ? 90 : 0)) / columns, bottom = rows.length * line;
  rows.forEach(function (layer, row) {
    if (line > 10 || row % 4 === 0) {
      element(p.svg, 'text', {x: left - 8, y: row * line + line - 4, 'class': 'axis end'}, layer.name);
      if (waits) element(p.svg, 'text', {x: p.width - 84, y: row * line + line - 4, 'class': 'axis'}, milliseconds(layer.wait));
    }
    var paths = {}, gap = wide > 4 ? 1 : 0, dead = '';
    layer.load.split('').forEach(function (digit, c) {
      if (digit === '-') return;
      var x = left + c * wide, y = row * line, w = Math.max(0.5, wide - gap), high = line - 1;
      if (digit === 'x' && w > 3) {
        dead += 'M' + x.toFixed(1) + ' ' + y + 'l' + w.toFixed(1) + ' ' + high + 'm' + (-w).toFixed(1) + ' 0l' + w.toFixed(1) + ' ' + -high;
      }
      paths[digit] = (paths[digit] || '') + 'M' + x.toFixed(1) + ' ' + y + 'h' + w.toFixed(1) + 'v' + high + 'h-' + w.toFixed(1) + 'z';
    });
    Object.keys(paths).forEach(function (digit) {
      var share = digit === 'x' ? 0 : +digit / 9;
      var cells = element(p.svg, 'path', {d: paths[digit], 'class': 'load', 'fill-opacity': digit === 'x' ? 0.04 : 0.08 + 0.92 * share});
      element(cells, 'title', {}, layer.name + ': ' + (digit === 'x' ? 'no tokens' : 'about ' + (share * map.most).toFixed(2) + ' times the mean'));
    });
    if (dead) element(p.svg, 'path', {d: dead, 'class': 'dead'});
  });
  [0, 0.5, 1].forEach(function (share) {
    var expert = Math.round(share * (map.experts_of_layer - 1));
    element(p.svg, 'text', {x: left + wide * columns * share, y: bottom + 13, 'class': share ? share < 1 ? 'axis middle' : 'axis end' : 'axis'}, expert);
  });
  element(p.svg, 'text', {x: left, y: p.height - 4, 'class': 'axis'}, 'strongest: ' + map.most.toFixed(2) + ' times the mean of a layer' +
          (waits ? '; right: waiting in its exchanges' : '') +
          (rows.length < map.layers_in_trace ? '; the first ' + rows.length + ' of ' + map.layers_in_trace + ' layers' : ''));
}

function drawCharts(rank) {
  drawSteps(rank);
  drawSpread(rank);
  drawCurves('queue-chart', 'launches', rank);
  drawCurves('memory-chart', 'bytes', rank);
  drawWaits(rank);
  drawExperts();
}
onRank(drawCharts);
var chartsResize;
window.addEventListener('resize', function () {
  clearTimeout(chartsResize);
  chartsResize = setTimeout(function () { drawCharts(chosenRank()); }, 150);
});
