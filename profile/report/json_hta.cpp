#include "profile/report/json_hta.h"

namespace ms::profile {
namespace {

// HTA rounds shares and times of streams to this many decimals.
constexpr int kRounded = 2, kExact = 6;

void write_share(JsonWriter& json, std::string_view key, int64_t part, int64_t whole, double scale) {
  json.key(key);
  whole == 0 ? json.null() : json.decimal(scale * static_cast<double>(part) / static_cast<double>(whole), kRounded);
}

void write_breakdown(JsonWriter& json, int rank, const HtaBreakdown& b) {
  json.begin_object();
  json.key("rank").value(rank);
  json.key("idle_time(us)").us(b.idle);
  json.key("compute_time(us)").us(b.compute);
  json.key("non_compute_time(us)").us(b.non_compute);
  json.key("kernel_time(us)").us(b.kernel);
  write_share(json, "idle_time_pctg", b.idle, b.kernel, 100);
  write_share(json, "compute_time_pctg", b.compute, b.kernel, 100);
  write_share(json, "non_compute_time_pctg", b.non_compute, b.kernel, 100);
  json.end_object();
}

void write_summary(JsonWriter& json, const HtaSummary& s) {
  json.key("count").value(s.count);
  json.key("mean").decimal(s.mean, kExact);
  json.key("std");
  s.std ? json.decimal(*s.std, kExact) : json.null();
  json.key("min").decimal(s.min, kExact);
  json.key("25%").decimal(s.p25, kExact);
  json.key("50%").decimal(s.p50, kExact);
  json.key("75%").decimal(s.p75, kExact);
  json.key("max").decimal(s.max, kExact);
}

void write_idle(JsonWriter& json, int rank, const HtaStreamIdle& idle) {
  for (size_t kind = 0; kind < idle.ns.size(); ++kind) {
    if (!idle.ns[kind]) continue;
    json.begin_object();
    json.key("rank").value(rank);
    json.key("stream").value(idle.stream);
    json.key("idle_category").value(hta_idle_name(static_cast<IdleKind>(kind)));
    json.key("idle_time").us(*idle.ns[kind]);
    write_share(json, "idle_time_ratio", *idle.ns[kind], idle.total(), 1);
    json.end_object();
  }
}

}  // namespace

void write_hta(JsonWriter& json, const HtaResults& results) {
  json.begin_object();
  json.key("profiler_steps").begin_array();
  for (const int64_t step : results.steps) json.value(step);
  json.end_array();
  json.key("temporal_breakdown").begin_array();
  for (const HtaRank& rank : results.ranks) {
    if (rank.breakdown) write_breakdown(json, rank.rank, *rank.breakdown);
  }
  json.end_array();
  json.key("comm_comp_overlap").begin_array();
  for (const HtaRank& rank : results.ranks) {
    const HtaBreakdown b = rank.breakdown.value_or(HtaBreakdown{});
    json.begin_object();
    json.key("rank").value(rank.rank);
    write_share(json, "comp_comm_overlap_pctg", b.overlap, b.communication, 100);
    json.end_object();
  }
  json.end_array();
  json.key("idle_time_breakdown").begin_array();
  for (const HtaRank& rank : results.ranks) {
    for (const HtaStreamIdle& idle : rank.idle) write_idle(json, rank.rank, idle);
  }
  json.end_array();
  json.key("queue_length_summary").begin_array();
  for (const HtaRank& rank : results.ranks) {
    for (const auto& [stream, summary] : rank.queues) {
      json.begin_object();
      json.key("rank").value(rank.rank);
      json.key("stream").value(stream);
      write_summary(json, summary);
      json.end_object();
    }
  }
  json.end_array();
  json.key("memory_bw_summary").begin_array();
  for (const HtaRank& rank : results.ranks) {
    for (const auto& [name, summary] : rank.bandwidths) {
      json.begin_object();
      json.key("rank").value(rank.rank);
      json.key("name").value(name);
      write_summary(json, summary);
      json.end_object();
    }
  }
  json.end_array();
  json.key("potential_stragglers").begin_array();
  for (const int rank : results.stragglers) json.value(rank);
  json.end_array();
  json.end_object();
}

}  // namespace ms::profile
