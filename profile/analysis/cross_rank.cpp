#include "profile/analysis/cross_rank.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>

#include "profile/analysis/idle.h"

namespace ms::profile {
namespace {

// P(X >= k) for n draws with probability p, summed in logarithms.
double binomial_tail(int64_t k, int64_t n, double p) {
  if (k <= 0) return 1;
  if (p <= 0 || p >= 1) return p >= 1 ? 1 : 0;
  double sum = 0;
  for (int64_t i = k; i <= n; ++i) {
    const double log_term = std::lgamma(static_cast<double>(n) + 1) - std::lgamma(static_cast<double>(i) + 1) -
                            std::lgamma(static_cast<double>(n - i) + 1) + static_cast<double>(i) * std::log(p) +
                            static_cast<double>(n - i) * std::log1p(-p);
    sum += std::exp(log_term);
  }
  return std::min(sum, 1.0);
}

// Whether the smallest of the sorted values is an outlier: Dixon's test at 0.995 (msprof-analyze's table), 3 sigma for
// more than 100 values.
bool smallest_is_outlier(const std::vector<double>& sorted) {
  constexpr double kCritical[] = {.994, .92,  .823, .744, .68,  .723, .676,
                                  .638, .707, .675, .649, .672, .649, .629};  // for 3 to 16 values
  const size_t n = sorted.size();
  if (n < 3) return false;
  if (n > 100) {
    double mean = 0, squares = 0;
    for (const double v : sorted) mean += v / static_cast<double>(n);
    for (const double v : sorted) squares += (v - mean) * (v - mean) / static_cast<double>(n);
    return mean - sorted[0] > 3 * std::sqrt(squares);
  }
  const size_t next = n > 10 ? 2 : 1, top = n > 13 ? 3 : n > 7 ? 2 : 1;
  const double range = sorted[n - top] - sorted[0];
  const double critical = n <= 16 ? kCritical[n - 3] : kCritical[13];
  return range > 0 && (sorted[next] - sorted[0]) / range > critical;
}

int64_t median_of(std::vector<int64_t> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void explain_computing(const std::vector<RankDevices>& ranks, const RankDevices& mine, SlowRank& slow) {
  const auto sums = [](const RankDevices& rank) {
    std::map<std::string, int64_t> out;
    for (const DeviceEvent& device : rank.view->devices) {
      if (device.device_class != DeviceClass::kComputation) continue;
      out[rank.trace->names[rank.trace->events.name[device.event]]] += rank.trace->events.dur[device.event];
    }
    return out;
  };
  std::vector<std::map<std::string, int64_t>> others;
  for (const RankDevices& rank : ranks) {
    if (rank.trace->rank != slow.rank) others.push_back(sums(rank));
  }
  int64_t most = 0;
  for (const auto& [name, sum] : sums(mine)) {
    std::vector<int64_t> theirs;  // 0 if a rank has no such kernel
    for (const auto& other : others) {
      const auto found = other.find(name);
      theirs.push_back(found == other.end() ? 0 : found->second);
    }
    const int64_t usual = median_of(std::move(theirs));
    if (sum - usual <= most) continue;
    most = sum - usual;
    slow.kernel = name;
    slow.kernel_ratio = usual > 0 ? static_cast<double>(sum) / static_cast<double>(usual) : 0;
    slow.kernel_more_ns = most;
  }
}

}  // namespace

SlowRank explain_late(const std::vector<RankDevices>& ranks, const CrossRank& cross, int rank_number) {
  SlowRank slow;
  slow.rank = rank_number;
  struct Amounts {
    int64_t computing = 0, host_wait = 0, waiting = 0;
  };
  const auto waits_of = [&cross](int rank) {
    const auto waits = cross.by_rank.find(rank);
    return waits == cross.by_rank.end() ? int64_t{0} : waits->second.wait;
  };
  std::vector<Amounts> others;
  Amounts own;
  const RankDevices* mine = nullptr;
  for (const RankDevices& rank : ranks) {
    Amounts amounts;
    amounts.computing = time_of(*rank.trace, *rank.view, DeviceClass::kComputation).length();
    for (const StreamIdle& idle : stream_idle(*rank.trace, *rank.view)) {
      amounts.host_wait += idle.ns[static_cast<size_t>(IdleKind::kHostWait)];
    }
    amounts.waiting = waits_of(rank.trace->rank);
    if (rank.trace->rank == slow.rank) {
      own = amounts;
      mine = &rank;
    } else {
      others.push_back(amounts);
    }
  }
  const auto more = [&](int64_t Amounts::*what) {
    std::vector<int64_t> values;
    for (const Amounts& amounts : others) values.push_back(amounts.*what);
    return own.*what - median_of(std::move(values));
  };
  const std::tuple<int64_t, SlowCause> causes[] = {{more(&Amounts::computing), SlowCause::kComputing},
                                                   {more(&Amounts::host_wait), SlowCause::kHostWait},
                                                   {more(&Amounts::waiting), SlowCause::kOwnWaiting}};
  const auto most = std::max_element(std::begin(causes), std::end(causes),
                                     [](auto& a, auto& b) { return std::get<0>(a) < std::get<0>(b); });
  if (std::get<0>(*most) <= 0) return slow;
  std::tie(slow.more_ns, slow.cause) = *most;
  if (slow.cause == SlowCause::kComputing && mine != nullptr) explain_computing(ranks, *mine, slow);
  return slow;
}

namespace {

class Analysis {
 public:
  Analysis(const std::vector<RankDevices>& ranks, const MatchedComms& comms, AlignMode mode)
      : ranks_(ranks), comms_(comms) {
    out_.clocks = align_clocks(ranks, comms, mode);
  }

  CrossRank run() {
    for (const RankDevices& rank : ranks_) out_.ranks.push_back(rank.trace->rank);
    out_.groups_incomplete = comms_.groups_incomplete;
    out_.messages = static_cast<int64_t>(comms_.messages.size());
    for (const CommInstance& instance : comms_.collectives) {
      if (instance.kind != CommKind::kSynchronising) continue;
      ++out_.instances;
      if (instance.parts.size() == ranks_.size()) ++out_.instances_in_all_ranks;
    }
    if (!out_.clocks.reliable) return std::move(out_);
    for (const int rank : out_.ranks) out_.by_rank[rank];
    for (const CommInstance& instance : comms_.collectives) add_collective(instance);
    for (const CommInstance& message : comms_.messages) add_message(message);
    std::stable_sort(out_.rows.begin(), out_.rows.end(), [](auto& a, auto& b) { return a.start < b.start; });
    find_slow_ranks();
    find_slow_links();
    find_rates();
    return std::move(out_);
  }

 private:
  int64_t common(uint32_t rank, int64_t t) const { return out_.clocks.ranks[rank].to_reference(t); }

  void add_collective(const CommInstance& instance) {
    if (instance.kind == CommKind::kRooted) return add_rooted(instance);
    WaitRow row;
    row.key = instance.key;
    row.type = instance.type;
    row.group = instance.group;
    row.bytes = instance.bytes;
    int64_t first = INT64_MAX, last = INT64_MIN, first_end = INT64_MAX, last_end = INT64_MIN;
    for (const CommPart& part : instance.parts) {
      const int64_t start = common(part.rank, part.start), end = start + (part.end - part.start);
      if (start > last) {
        last = start;
        row.last_arriver = out_.ranks[part.rank];
      }
      first = std::min(first, start);
      first_end = std::min(first_end, end);
      last_end = std::max(last_end, end);
      row.members.push_back({out_.ranks[part.rank], start, 0, part.end - part.start, part.event});
    }
    row.start = first;
    row.skew = last - first;
    row.end_spread = last_end - first_end;
    row.transfer = row.members[0].duration;
    int64_t blame = 0;
    for (WaitRow::Member& member : row.members) {
      member.wait = std::clamp<int64_t>(last - member.start, 0, member.duration);
      row.transfer = std::min(row.transfer, member.duration);
      RankWaits& waits = out_.by_rank[member.rank];
      waits.wait += member.wait;
      ++waits.instances;
      blame += member.wait;
    }
    out_.by_rank[row.last_arriver].blame += blame;
    ++out_.by_rank[row.last_arriver].times_last;
    out_.rows.push_back(std::move(row));
  }

  // Late broadcast and scatter: receivers wait for the root. Early reduce and gather: the root waits for the last rank.
  void add_rooted(const CommInstance& instance) {
    const auto root = std::find_if(instance.parts.begin(), instance.parts.end(),
                                   [&](const CommPart& part) { return static_cast<int>(part.rank) == instance.root; });
    if (root == instance.parts.end()) return;
    const int64_t at_root = common(root->rank, root->start);
    const bool outward = instance.type == "broadcast" || instance.type == "scatter";
    int64_t last = at_root;
    uint32_t late = root->rank;
    for (const CommPart& part : instance.parts) {
      const int64_t start = common(part.rank, part.start);
      if (outward) {
        const int64_t wait = std::clamp<int64_t>(at_root - start, 0, part.end - part.start);
        out_.by_rank[out_.ranks[part.rank]].wait += wait;
        out_.by_rank[out_.ranks[root->rank]].blame += wait;
      } else if (start > last) {
        last = start;
        late = part.rank;
      }
    }
    if (outward) return;
    const int64_t wait = std::clamp<int64_t>(last - at_root, 0, root->end - root->start);
    out_.by_rank[out_.ranks[root->rank]].wait += wait;
    out_.by_rank[out_.ranks[late]].blame += wait;
  }

  void add_message(const CommInstance& message) {
    const CommPart &send = message.parts[0], &receive = message.parts[1];
    const int64_t s = common(send.rank, send.start), r = common(receive.rank, receive.start);
    const int64_t send_dur = send.end - send.start, receive_dur = receive.end - receive.start;
    out_.by_rank[out_.ranks[receive.rank]].late_sender += std::clamp<int64_t>(s - r, 0, receive_dur);
    out_.by_rank[out_.ranks[send.rank]].late_receiver += std::clamp<int64_t>(r - s, 0, send_dur);
    Link& link = out_.links[{out_.ranks[send.rank], out_.ranks[receive.rank]}];
    ++link.messages;
    link.bytes += std::max<int64_t>(message.bytes, 0);
    link.transfer += std::max<int64_t>(0, std::min(s + send_dur, r + receive_dur) - std::max(s, r));
  }

  void find_slow_ranks() {
    constexpr double kChance = 0.01, kShare = 0.3;
    int64_t all_blame = 0;
    std::map<int, double> chance;  // mean of 1 / members over the rank's operations
    for (const WaitRow& row : out_.rows) {
      std::vector<double> durations;
      const WaitRow::Member* shortest = &row.members[0];
      for (const WaitRow::Member& member : row.members) {
        chance[member.rank] += 1.0 / static_cast<double>(row.members.size());
        durations.push_back(static_cast<double>(member.duration));
        if (member.duration < shortest->duration) shortest = &member;
      }
      std::sort(durations.begin(), durations.end());
      if (smallest_is_outlier(durations)) ++out_.dixon_votes[shortest->rank];
    }
    for (const auto& [rank, waits] : out_.by_rank) all_blame += waits.blame;
    for (const auto& [rank, waits] : out_.by_rank) {
      if (waits.instances == 0 || all_blame == 0) continue;
      SlowRank slow;
      slow.rank = rank;
      slow.times_last = waits.times_last;
      slow.instances = waits.instances;
      slow.blame = waits.blame;
      slow.blame_share = static_cast<double>(waits.blame) / static_cast<double>(all_blame);
      slow.p_value =
          binomial_tail(waits.times_last, waits.instances, chance[rank] / static_cast<double>(waits.instances));
      if (slow.p_value < kChance && slow.blame_share >= kShare) {
        const SlowRank why = explain_late(ranks_, out_, rank);
        slow.cause = why.cause;
        slow.more_ns = why.more_ns;
        slow.kernel = why.kernel;
        slow.kernel_ratio = why.kernel_ratio;
        slow.kernel_more_ns = why.kernel_more_ns;
        out_.slow_ranks.push_back(std::move(slow));
      }
    }
    std::stable_sort(out_.slow_ranks.begin(), out_.slow_ranks.end(),
                     [](const SlowRank& a, const SlowRank& b) { return a.blame > b.blame; });
  }

  void find_slow_links() {
    constexpr size_t kFewLinks = 3;
    constexpr double kSlow = 0.7;
    std::vector<double> rates;
    for (const auto& [ends, link] : out_.links) {
      if (link.transfer > 0 && link.bytes > 0) {
        rates.push_back(static_cast<double>(link.bytes) / static_cast<double>(link.transfer));
      }
    }
    if (rates.size() < kFewLinks) return;
    std::sort(rates.begin(), rates.end());
    const double median =
        rates.size() % 2 != 0 ? rates[rates.size() / 2] : (rates[rates.size() / 2 - 1] + rates[rates.size() / 2]) / 2;
    for (const auto& [ends, link] : out_.links) {
      if (link.transfer <= 0 || link.bytes <= 0) continue;
      const double rate = static_cast<double>(link.bytes) / static_cast<double>(link.transfer);
      if (rate < kSlow * median) out_.slow_links.push_back({ends.first, ends.second, rate, rate / median});
    }
    std::stable_sort(out_.slow_links.begin(), out_.slow_links.end(),
                     [](const SlowLink& a, const SlowLink& b) { return a.gb_per_s < b.gb_per_s; });
  }

  void find_rates() {
    std::map<std::tuple<std::string, std::string, int64_t>, CollectiveRate> rates;
    for (const WaitRow& row : out_.rows) {
      if (row.bytes <= 0 || row.transfer <= 0) continue;
      const auto size_class = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(row.bytes)));
      CollectiveRate& rate = rates[{row.type, row.group, size_class}];
      const double algbw = static_cast<double>(row.bytes) / static_cast<double>(row.transfer);
      const auto n = static_cast<double>(row.members.size());
      const double factor = row.type == "allreduce" ? 2 * (n - 1) / n
                            : row.type == "allgather" || row.type == "reduce_scatter" || row.type == "alltoall"
                                ? (n - 1) / n
                                : 1;
      rate.type = row.type;
      rate.group = row.group;
      rate.size_class = size_class;
      rate.ranks = static_cast<int64_t>(row.members.size());
      rate.best_algbw = std::max(rate.best_algbw, algbw);
      rate.worst_algbw = rate.instances == 0 ? algbw : std::min(rate.worst_algbw, algbw);
      rate.mean_algbw += algbw;
      rate.mean_busbw += algbw * factor;
      ++rate.instances;
    }
    for (auto& [key, rate] : rates) {
      rate.mean_algbw /= static_cast<double>(rate.instances);
      rate.mean_busbw /= static_cast<double>(rate.instances);
      out_.rates.push_back(std::move(rate));
    }
  }

  const std::vector<RankDevices>& ranks_;
  const MatchedComms& comms_;
  CrossRank out_;
};

}  // namespace

std::string_view slow_cause_name(SlowCause cause) {
  constexpr std::string_view kNames[] = {"computing", "host_wait", "own_waiting", "unknown"};
  return kNames[static_cast<size_t>(cause)];
}

CrossRank cross_rank(const std::vector<RankDevices>& ranks, const MatchedComms& comms, AlignMode mode) {
  return Analysis(ranks, comms, mode).run();
}

}  // namespace ms::profile
