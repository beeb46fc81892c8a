// Which elements of the buffer of a rank's parameters that train each of its replicas owns: whose gradients it needs
// reduced, whose master weights and optimizer state it has, and from ZeRO-3 on whose weights it keeps.
//
// Without ZeRO the buffer is one unit, or two: with expert parallelism other ranks hold an expert than hold the rest,
// and what the same ranks reduce must be neighbours (buffers and expert_parallel_buffers of
// megatron/core/distributed/distributed_data_parallel.py). With it a layer is a unit, or its experts and the rest of it
// are, as are the word embeddings, the learned positions, and the final norm with the output layer: what is reduced, or
// gathered, at once (torch's FSDP, Zhao et al. 2023, section 3.2; the FSDP units of megatron/core/distributed/fsdp).
// Experts that other ranks hold are a unit with the id of their layer; where one rank holds them, nothing of it is
// divided. Each replica owns a block of each unit, as of each bucket of Megatron's distributed optimizer, so that all
// of them have the same part of every message: all links are used in both directions. Units, unlike Megatron's
// buckets, do not depend on a flag, so that no bucket size changes who owns an element.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/layout/parameter_specs.h"
#include "core/layout/process_group_table.h"
#include "core/layout/rank_grid.h"
#include "core/layout/sharding.h"

namespace ms::layout {

// Learned positions are looked up with the word embeddings, unit -1, but a tied embedding is read by the output layer,
// too, and is on two stages, which must cut it alike. Other parameters: ParameterSpec::layer.
inline constexpr int64_t kWordsUnit = -1, kPositionsUnit = -2;
inline constexpr int64_t kWholeUnit = -4;  // of the parameters of all layers that nobody divides
int64_t unit_of(const ParameterSpec& spec);

class BufferCut {
 public:
  struct Unit {
    int64_t id = 0;                 // unit_of, if cuts_layers; of experts apart that of their layer
    Group replicas = Group::kDpCp;  // the ranks that hold its parameters
    int num_replicas = 1;
    Group owners = Group::kDpCp;          // of those, the ranks that divide them: all, or those of an instance
    Group instances = Group::kDpReplica;  // the ranks that own the same part, one of each instance
    bool whole = false;                   // nobody divides it (Sharding::least_divided_elems)
    FlatRange range;                      // of the buffer; a multiple of 128 x num_replicas; may be empty
    std::vector<int64_t> starts;          // of its parameters, within it
    int64_t num_elements = 0;             // of its parameters, without padding
    int64_t owned_begin = 0;              // where a replica's block of it is among all that its rank owns
  };
  // Where a parameter is. Units are lined up by finish() only.
  struct Place {
    size_t unit = 0;
    int64_t offset = 0;  // within the unit
  };
  BufferCut() = default;
  BufferCut(const Sharding& sharding, const RankGrid& grid);

  // Appends a parameter to its unit.
  Place add(const ParameterSpec& spec, int64_t numel);
  // After the last parameter. begin: where the first unit begins.
  void finish(int64_t begin = 0);

  const Sharding& sharding() const { return sharding_; }
  // Whether layers are units of their own: where the buffer is divided.
  bool cuts_layers() const { return sharding_.state() && sharding_.owners() > 1; }
  const std::vector<Unit>& units() const { return units_; }  // in the order of the buffer
  int64_t size() const;                                      // elements, with padding
  int64_t begin_of(const Place& place) const { return units_[place.unit].range.begin + place.offset; }
  // Elements of the units of one id that are divided, at most: what is acquired at once.
  int64_t largest_unit() const;
  int64_t num_divided_ids() const;
  const Unit& unit_at(int64_t element) const;  // the one whose range has it

  // Elements that a rank owns, the same for all.
  int64_t owned_size() const;
  // Ranks that divide a unit; 1: none do.
  int num_owners(const Unit& unit) const {
    return sharding_.state() && !unit.whole ? unit.num_replicas / sharding_.num_instances : 1;
  }
  // owner: number of a rank among the unit's owners.
  FlatRange owned_block(const Unit& unit, int owner) const;
  // Of elements of one unit, such as a parameter, those that an owner has; empty if begin >= end.
  FlatRange owned_part(FlatRange elements, int owner) const;
  // Where these elements of one unit, which the owner has, are among all that its rank owns.
  FlatRange owned_place(FlatRange part, int owner) const;
  // How many elements of a range within one unit each owner has.
  std::vector<int64_t> owned_counts(FlatRange range) const;
  // Of what a rank owns, which is in the order dense units, experts apart, whole units: what the same ranks of other
  // instances own, too.
  FlatRange owned_by_instances(Group replicas) const { return sections_[replicas == Group::kDpCp ? 0 : 1]; }

  // Elements whose optimizer state a rank has: all that it owns, or of each section of that the block of its instance
  // (Sharding::parts_of_state).
  int64_t state_size() const;
  // The elements, of all that a rank owns, whose state a rank of the instance has, in the section of this unit.
  FlatRange state_block(const Unit& unit, int instance) const;
  // Where such elements are among all whose state the rank has.
  FlatRange state_place(const Unit& unit, FlatRange owned, int instance) const;

 private:
  Unit unit_of_replicas(bool is_apart) const;
  size_t section_of(const Unit& unit) const { return unit.whole ? 2 : unit.replicas == Group::kDpCp ? 0 : 1; }

  Sharding sharding_;
  int expert_replicas_ = 0;  // of experts that other ranks hold than the rest; 0: the same ranks do
  std::vector<Unit> units_;
  std::array<FlatRange, 3> sections_{};  // of what a rank owns: dense units, experts apart, whole units
};

// The number of a rank among the owners of a unit, and that of its instance.
int owner_of(const BufferCut::Unit& unit, const RankGrid& grid, int rank);
int instance_of(const RankGrid& grid, int rank);

// Units whose unreduced gradients, or gathered weights, a rank holds at once at most, in slots of the largest unit: one
// is used while the other is on its way. What is not divided needs none.
inline int64_t unit_slots(const BufferCut& cut) { return cut.num_divided_ids() < 2 ? 1 : 2; }

}  // namespace ms::layout
