// What the scripts of the report share: the data, the chosen rank, colours and units.
document.documentElement.classList.add('js');

function byId(id) {
  return document.getElementById(id);
}
function json(id) {
  return JSON.parse(byId(id).textContent);
}

var charts = json('data-charts');
var picker = byId('rank');
var rankListeners = [];

// The number of the chosen rank, or 'all'.
function chosenRank() {
  return !picker || picker.value === 'all' ? 'all' : Number(picker.value);
}
// Calls back now and whenever another rank is chosen.
function onRank(callback) {
  rankListeners.push(callback);
  callback(chosenRank());
}
function chooseRank(rank) {
  picker.value = String(rank);
  rankListeners.forEach(function (callback) { callback(chosenRank()); });
}
if (picker) {
  picker.addEventListener('change', function () { chooseRank(picker.value); });
}

var style = getComputedStyle(document.documentElement);
function color(name) {
  return style.getPropertyValue('--' + name).trim();
}

// As the tables print it.
function milliseconds(ns) {
  return (ns * 1e-6).toFixed(3) + ' ms';
}
// With a unit that fits.
function time(ns) {
  return ns >= 1e9 ? (ns * 1e-9).toFixed(3) + ' s' : ns >= 1e6 ? milliseconds(ns) : ns >= 1e3 ? (ns * 1e-3).toFixed(3) + ' us' : ns + ' ns';
}
function amount(value, unit) {
  if (unit !== 'bytes') return String(value);
  return value >= 1e9 ? (value * 1e-9).toFixed(2) + ' GB' : value >= 1e6 ? (value * 1e-6).toFixed(2) + ' MB' : (value * 1e-3).toFixed(2) + ' kB';
}
// Multiples of 1, 2 or 5 times a power of ten that divide a span into at most `most` parts.
function tickStep(span, most) {
  var power = Math.pow(10, Math.floor(Math.log10(span / most)));
  return [1, 2, 5, 10].map(function (f) { return f * power; }).find(function (s) { return span / s <= most; });
}
