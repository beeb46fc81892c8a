#include "train/optim/expert_moves.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/layout/expert_packing.h"

namespace ms::train {
namespace {

using layout::FlatRange;

bool is_of_experts(const layout::ParameterSpec& spec, int64_t layer) {
  return spec.expert >= 0 && spec.layer + spec.mtp_layer == layer;
}

// The parameters of this rank's slots, tensors_each of them for a slot, in the order of the buffers.
struct SlotParameters {
  SlotParameters(const RankState& state, ParameterStore& parameters, int64_t layer)
      : each(state.config.model.num_experts / state.groups.grid.ep), first(state.groups.at_experts.ep * each) {
    for (Parameter& parameter : parameters.all()) {
      if (is_of_experts(parameter.spec, layer)) all.push_back(&parameter);
    }
    tensors_each = all.size() / static_cast<size_t>(each);
  }
  Parameter& at(int64_t slot, size_t tensor) const {  // slot: of this rank
    return *all[static_cast<size_t>(slot) * tensors_each + tensor];
  }
  bool has(int32_t slot) const { return slot / each == first / each; }

  int64_t each, first;  // slots of a rank; of all slots, this rank's first one
  size_t tensors_each = 0;
  std::vector<Parameter*> all;
};

void put_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

class LayerMove {
 public:
  LayerMove(const RankState& state, ParameterStore& parameters, Optimizer& optimizer, int64_t layer)
      : state_(state), parameters_(parameters), kept_(optimizer.state()), slots_(state, parameters, layer) {}

  MovedBytes run(std::span<const int32_t> from, std::span<const int32_t> to) {
    if (slots_.all.empty()) return {};  // another stage has the layer
    for (size_t expert = 0; expert < from.size(); ++expert) {
      if (from[expert] == to[expert]) continue;
      if (slots_.has(from[expert])) leaving_.push_back({from[expert] - slots_.first, to[expert]});
      if (slots_.has(to[expert])) arriving_.push_back({to[expert] - slots_.first, from[expert]});
    }
    // By rank, then by the slot in which they arrive.
    std::ranges::sort(leaving_, {}, &Route::other);
    std::ranges::sort(arriving_, {},
                      [&](const Route& route) { return std::pair(route.other / slots_.each, route.slot); });
    gather();
    exchange();
    return moved_;
  }

 private:
  struct Route {
    int64_t slot;   // of this rank
    int64_t other;  // of all slots: where the expert goes, or was
  };
  // Of a tensor its weights, and the numbers of each role of the optimizer's state.
  struct Values {
    const Parameter& parameter;
    size_t array;  // 0: weights
  };

  template <class Body>
  void for_each_values(int64_t slot, const Body& body) {
    for (size_t tensor = 0; tensor < slots_.tensors_each; ++tensor) {
      const Parameter& parameter = slots_.at(slot, tensor);
      for (size_t array = 0; array < (parameter.trains() ? 1 + kept_.size() : 1); ++array)
        body(Values{parameter, array}, tensor);
    }
  }
  static int64_t item(const Values& of) {
    return core::size_of(of.array == 0 ? of.parameter.weight.dtype() : core::DType::kFp32);
  }
  bool is_divided(const Values& of) const {
    return of.parameter.trains() && parameters_.num_owners(of.parameter) > 1 &&
           (of.array > 0 || parameters_.cut().sharding().weights());
  }
  core::Communicator& owners(const Values& of) const { return parameters_.owners(parameters_.unit_of(of.parameter)); }
  // Elements within the tensor that an owner has.
  FlatRange part(const Values& of, int owner) const {
    const Parameter& parameter = of.parameter;
    if (!is_divided(of)) return {0, parameter.size()};
    const FlatRange owned =
        parameters_.cut().owned_part({parameter.offset_elems, parameter.offset_elems + parameter.size()}, owner);
    const int64_t begin = owned.begin - parameter.offset_elems;
    return {begin, std::max(begin, owned.end - parameter.offset_elems)};
  }
  FlatRange own_part(const Values& of) const { return part(of, is_divided(of) ? owners(of).rank() : 0); }
  // Where this rank has them, which it must, and they are not none.
  std::byte* own_bytes(const Values& of, FlatRange elements) const {
    const Parameter& parameter = of.parameter;
    const FlatRange range = {parameter.offset_elems + elements.begin, parameter.offset_elems + elements.end};
    if (of.array > 0) return kept_[of.array - 1].values.bytes() + parameters_.state_place(range).begin * item(of);
    if (is_divided(of)) return parameters_.owned_weights(range).bytes();
    return parameter.weight.bytes() + elements.begin * item(of);
  }
  core::Tensor buffer(int64_t bytes) const {
    return core::Tensor(state_.ops.arena, core::DType::kUInt8, {bytes}, core::MemoryTag::kTmp);
  }

  // Of what replicas of the leaving experts have divided, all to each of them, in whole_.
  void gather() {
    core::Communicator* replicas = nullptr;
    int64_t size = 0;
    for (const Route& route : leaving_) {
      for_each_values(route.slot, [&](const Values& of, size_t) {
        if (!is_divided(of)) return;
        replicas = &owners(of);
        size += of.parameter.size() * item(of);
      });
    }
    if (replicas == nullptr) return;
    std::vector<int64_t> counts(static_cast<size_t>(replicas->size()));
    for_each_part(replicas->size(), [&](int owner, const Values& of, FlatRange elements, int64_t) {
      counts[static_cast<size_t>(owner)] += (elements.end - elements.begin) * item(of);
    });
    const core::Tensor own = buffer(counts[static_cast<size_t>(replicas->rank())]), parts = buffer(size);
    whole_ = buffer(size);
    int64_t at = 0;
    for_each_part(replicas->size(), [&](int owner, const Values& of, FlatRange elements, int64_t) {
      const int64_t bytes = (elements.end - elements.begin) * item(of);
      if (owner != replicas->rank() || bytes == 0) return;
      put_bytes(own.bytes() + at, own_bytes(of, elements), bytes);
      at += bytes;
    });
    replicas->iallgatherv(own, counts, parts).wait();
    at = 0;
    for_each_part(replicas->size(), [&](int, const Values& of, FlatRange elements, int64_t begin) {
      const int64_t bytes = (elements.end - elements.begin) * item(of);
      put_bytes(whole_.bytes() + begin + elements.begin * item(of), parts.bytes() + at, bytes);
      at += bytes;
    });
    moved_.gathered += size - own.size();
  }
  // Calls body(owner, values, elements, where the values begin in whole_), owner by owner, for what leaves.
  template <class Body>
  void for_each_part(int num_owners, const Body& body) {
    for (int owner = 0; owner < num_owners; ++owner) {
      int64_t begin = 0;
      for (const Route& route : leaving_) {
        for_each_values(route.slot, [&](const Values& of, size_t) {
          if (!is_divided(of)) return;
          body(owner, of, part(of, owner), begin);
          begin += of.parameter.size() * item(of);
        });
      }
    }
  }

  void exchange() {
    const auto ranks = static_cast<size_t>(state_.groups.grid.ep);
    std::vector<int64_t> sent(ranks), received(ranks);
    // What the other rank keeps is the part that this one has of its own parameter in that place.
    const auto for_each_kept = [&](const std::vector<Route>& routes, bool leave, const auto& body) {
      for (const Route& route : routes) {
        const auto rank = static_cast<size_t>(route.other / slots_.each);
        for_each_values(leave ? route.other % slots_.each : route.slot, [&](const Values& of, size_t tensor) {
          const FlatRange kept = own_part(of);
          body(route, rank, Values{slots_.at(route.slot, tensor), of.array}, kept, (kept.end - kept.begin) * item(of));
        });
      }
    };
    for_each_kept(leaving_, true,
                  [&](const Route&, size_t rank, const Values&, FlatRange, int64_t bytes) { sent[rank] += bytes; });
    for_each_kept(arriving_, false,
                  [&](const Route&, size_t rank, const Values&, FlatRange, int64_t bytes) { received[rank] += bytes; });
    const auto sum = [](const std::vector<int64_t>& counts) {
      int64_t all = 0;
      for (const int64_t count : counts) all += count;
      return all;
    };
    const core::Tensor out = buffer(sum(sent)), in = buffer(sum(received));
    int64_t at = 0, begin = 0;
    for_each_kept(leaving_, true, [&](const Route&, size_t, const Values& of, FlatRange kept, int64_t bytes) {
      const bool divided = is_divided(of);
      if (bytes > 0)
        put_bytes(out.bytes() + at, divided ? whole_.bytes() + begin + kept.begin * item(of) : own_bytes(of, kept),
                  bytes);
      at += bytes;
      if (divided) begin += of.parameter.size() * item(of);
    });
    state_.groups.of_training(layout::Group::kEp)->ialltoallv(out, sent, in, received).wait();
    at = 0;
    for_each_kept(arriving_, false, [&](const Route&, size_t, const Values& of, FlatRange kept, int64_t bytes) {
      if (bytes > 0) put_bytes(own_bytes(of, kept), in.bytes() + at, bytes);
      at += bytes;
    });
    moved_.received += in.size() - received[static_cast<size_t>(state_.groups.at_experts.ep)];
  }

  const RankState& state_;
  ParameterStore& parameters_;
  const std::vector<OptimizerState> kept_;
  SlotParameters slots_;
  std::vector<Route> leaving_, arriving_;
  core::Tensor whole_;  // what gather() has brought, in the order of leaving_
  MovedBytes moved_;
};

}  // namespace

void name_slots(const RankState& state, ParameterStore& parameters, int64_t layer, std::span<const int32_t> slots) {
  const SlotParameters own(state, parameters, layer);
  if (own.all.empty()) return;  // another stage has the layer
  const std::vector<layout::ParameterSpec>& model = parameters.model();
  std::vector<size_t> specs;  // of all experts of the layer, in the order of the model
  for (size_t i = 0; i < model.size(); ++i) {
    if (is_of_experts(model[i], layer)) specs.push_back(i);
  }
  const std::vector<int32_t> experts = layout::experts_of_slots(slots);
  for (int64_t slot = 0; slot < own.each; ++slot) {
    const auto expert = static_cast<size_t>(experts[static_cast<size_t>(own.first + slot)]);
    for (size_t tensor = 0; tensor < own.tensors_each; ++tensor) {
      Parameter& parameter = own.at(slot, tensor);
      parameter.model_index = specs[expert * own.tensors_each + tensor];
      parameter.spec = model[parameter.model_index];
    }
  }
}

MovedBytes move_experts(const RankState& state, ParameterStore& parameters, Optimizer& optimizer, int64_t layer,
                        std::span<const int32_t> from, std::span<const int32_t> to) {
  const MovedBytes moved = LayerMove(state, parameters, optimizer, layer).run(from, to);
  name_slots(state, parameters, layer, to);
  parameters.note_weight_change();
  return moved;
}

}  // namespace ms::train
