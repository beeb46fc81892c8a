#include "core/comm/detail/level_collectives.h"

#include <functional>
#include <utility>
#include <vector>

#include "core/comm/detail/exchange.h"
#include "core/comm/two_levels.h"

namespace ms::core::detail {
namespace {

// Collectives of the two levels, one after the other. All have the facts and the tag of the whole: two ranks are either
// on one machine or not, so their messages of different levels never meet.
class InLevels : public Operation {
 public:
  using Stage = std::function<std::shared_ptr<Operation>()>;
  InLevels(Communicator& comm, const OperationFacts& facts, std::vector<Stage> stages)
      : Operation(comm, facts), stages_(std::move(stages)) {}

  void begin() override { begin_stage(); }

 protected:
  bool others_have_come() override {
    while (running_->step()) {
      note_part(*running_);
      if (next_ == stages_.size()) return true;
      begin_stage();
    }
    return false;
  }
  bool next_phase() override { return true; }
  std::vector<int> silent_ranks() const override { return running_->silent_ranks(); }

 private:
  void begin_stage() {
    running_ = stages_[next_++]();
    begin_part(*running_);
  }

  std::vector<Stage> stages_;
  size_t next_ = 0;
  std::shared_ptr<Operation> running_;
};

// The ranges of `blocks`, which has one for each rank of the whole group, that the ranks of a machine with these places
// have: of each place the ranges of its ranks on all machines.
Blocks of_places(const Blocks& blocks, const TwoLevels& levels) {
  std::vector<Range> ranges;
  const size_t places = levels.at.front().size();
  for (size_t place = 0; place < places; ++place) {
    for (const std::vector<int>& ranks : levels.at) ranges.push_back(blocks.range(ranks[place]));
  }
  return Blocks(std::move(ranges), static_cast<int>(levels.at.size()));
}

// The ranges of the ranks across machines.
Blocks of_machines(const Blocks& blocks, const TwoLevels& levels) {
  std::vector<Range> ranges;
  for (const int member : levels.across) ranges.push_back(blocks.range(member));
  return Blocks(std::move(ranges));
}

}  // namespace

std::shared_ptr<Operation> make_level_allreduce(Communicator& comm, const OperationFacts& facts, const TensorView& data,
                                                ReduceOp op) {
  CommunicatorLevels& levels = *comm.levels();
  const Blocks shares = Blocks::even(data.size(), levels.within.size());
  const Range& own = shares.range(levels.within.rank());
  const int64_t bytes = data.size_bytes();
  return std::make_shared<InLevels>(
      comm, facts,
      std::vector<InLevels::Stage>{
          [=, &levels] { return make_exchange<ReduceScatter>(bytes, levels.within, facts, data, shares, op); },
          [=, &levels] {
            const TensorView share = data.reshaped({data.size()}).rows(own.begin, own.end());
            return make_exchange<LargeAllreduce>(bytes, levels.across, facts, share, op);
          },
          [=, &levels] { return make_exchange<Allgather>(bytes, levels.within, facts, data, shares); }});
}

std::shared_ptr<Operation> make_level_reduce_scatter(Communicator& comm, const OperationFacts& facts,
                                                     const TensorView& input, const Blocks& blocks,
                                                     const TensorView& output, ReduceOp op) {
  CommunicatorLevels& levels = *comm.levels();
  const Blocks within = of_places(blocks, levels.ranks), across = of_machines(blocks, levels.ranks);
  const int64_t bytes = input.size_bytes();
  return std::make_shared<InLevels>(
      comm, facts,
      std::vector<InLevels::Stage>{
          [=, &levels] { return make_exchange<ReduceScatter>(bytes, levels.within, facts, input, within, op); },
          [=, &levels] {
            return make_exchange<ReduceScatter>(bytes, levels.across, facts, input, across, output, op);
          }});
}

std::shared_ptr<Operation> make_level_allgather(Communicator& comm, const OperationFacts& facts,
                                                const TensorView& input, const Blocks& blocks,
                                                const TensorView& output) {
  CommunicatorLevels& levels = *comm.levels();
  const Blocks within = of_places(blocks, levels.ranks), across = of_machines(blocks, levels.ranks);
  const int64_t bytes = output.size_bytes();
  return std::make_shared<InLevels>(
      comm, facts,
      std::vector<InLevels::Stage>{
          [=, &levels] { return make_exchange<Allgather>(bytes, levels.across, facts, input, across, output); },
          [=, &levels] { return make_exchange<Allgather>(bytes, levels.within, facts, output, within); }});
}

}  // namespace ms::core::detail
