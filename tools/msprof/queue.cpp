#include "tools/msprof/queue.h"

#include "tools/msprof/section_verb.h"

namespace ms::tools::msprof {
namespace {

class QueueVerb final : public SectionVerb {
 public:
  QueueVerb() : SectionVerb("queue", "queue length of each stream", {&profile::sections::kQueues}) {}

 private:
  void add_flags(CLI::App& verb) override {
    counters_.add(verb);
    limit_.add(verb);
  }
  profile::AnalysisOptions options() const override {
    profile::AnalysisOptions options = SectionVerb::options();
    options.queue_limit = limit_.queue_limit;
    return options;
  }
  void write_files(profile::Store& store, const profile::Results& results) const override {
    counters_.write(store, results);
  }

  CountersFlag counters_;
  QueueLimitFlag limit_;
};

}  // namespace

std::unique_ptr<Verb> queue_verb() { return std::make_unique<QueueVerb>(); }

}  // namespace ms::tools::msprof
