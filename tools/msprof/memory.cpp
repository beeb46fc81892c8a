#include "tools/msprof/memory.h"

#include "tools/msprof/section_verb.h"

namespace ms::tools::msprof {
namespace {

class MemoryVerb final : public SectionVerb {
 public:
  MemoryVerb()
      : SectionVerb("memory", "copies by kind, allocations, peaks, and the blocks alive at them",
                    {&profile::sections::kMemory}) {}

 private:
  void add_flags(CLI::App& verb) override {
    output_.add_top(verb);
    counters_.add(verb);
  }
  void write_files(profile::Store& store, const profile::Results& results) const override {
    counters_.write(store, results);
  }

  CountersFlag counters_;
};

}  // namespace

std::unique_ptr<Verb> memory_verb() { return std::make_unique<MemoryVerb>(); }

}  // namespace ms::tools::msprof
