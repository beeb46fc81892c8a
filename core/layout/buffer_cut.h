// Which elements of the buffer of a rank's parameters that train each data-parallel rank owns: whose gradients it needs
// reduced, whose master weights and optimizer state it has, and from ZeRO-3 on whose weights it keeps.
//
// Up to ZeRO-1 the buffer is one unit, of which each rank owns a block. From ZeRO-2 on a layer is a unit, as are the
// word embeddings, the learned positions, and the final norm with the output layer: what is reduced, or gathered, at
// once (torch's FSDP, Zhao et al. 2023, section 3.2; the FSDP units of megatron/core/distributed/fsdp). Each rank owns
// a block of each unit, so that all of them have the same part of every message.
#pragma once

#include <cstdint>
#include <vector>

#include "core/layout/parameter_specs.h"
#include "core/layout/sharding.h"

namespace ms::layout {

// Learned positions are looked up with the word embeddings, unit -1, but a tied embedding is read by the output layer,
// too, and is on two stages, which must cut it alike. Other parameters: ParameterSpec::layer.
inline constexpr int64_t kWordsUnit = -1, kPositionsUnit = -2;
int64_t unit_of(const ParameterSpec& spec);

class BufferCut {
 public:
  struct Unit {
    int64_t id = 0;   // unit_of; of a buffer that is one unit: of its first parameter
    FlatRange range;  // of the buffer; a multiple of 128 x data-parallel size
  };
  BufferCut() = default;
  explicit BufferCut(Sharding sharding) : sharding_(sharding) {}

  // Appends a parameter; those of a unit follow one another. Returns where in the buffer it begins.
  int64_t add(int64_t unit, int64_t numel);
  // After the last parameter.
  void finish();

  const Sharding& sharding() const { return sharding_; }
  const std::vector<Unit>& units() const { return units_; }                      // in the order of the buffer
  int64_t size() const { return units_.empty() ? 0 : units_.back().range.end; }  // elements, with padding
  int64_t largest_unit() const;                                                  // elements

  // Elements that a rank owns, the same for all.
  int64_t owned_size() const { return size() / owners(); }
  FlatRange owned_block(const Unit& unit, int dp_rank) const;
  // Of elements of one unit, such as a parameter, those that a rank owns; empty if begin >= end.
  FlatRange owned_part(FlatRange elements, int dp_rank) const;
  // Where these elements of one unit, which the rank owns, are among all that it owns.
  FlatRange owned_place(FlatRange part, int dp_rank) const;
  // How many elements of a range each rank owns.
  std::vector<int64_t> owned_counts(FlatRange range) const;

 private:
  int owners() const { return sharding_.state() ? sharding_.data_parallel_size : 1; }
  const Unit& unit_at(int64_t element) const;  // whose range begins at or before it

  Sharding sharding_;
  std::vector<Unit> units_;
};

// Units whose unreduced gradients, or gathered weights, a rank holds at once at most, in slots of the largest unit: one
// is used while the other is on its way.
inline int64_t unit_slots(const BufferCut& cut) { return cut.units().size() < 2 ? 1 : 2; }

}  // namespace ms::layout
