#include "tools/msprof/mfu.h"

#include "core/error.h"
#include "core/log.h"
#include "profile/report/mfu_tables.h"
#include "tools/command_line.h"
#include "tools/msprof/section_verb.h"

namespace ms::tools::msprof {
namespace {

class MfuVerb final : public Verb {
 public:
  const char* name() const override { return "mfu"; }
  const char* help() const override {
    return "FLOP/s, utilisation (MFU, HFU), FLOPs per byte, and the share of the time that they cover";
  }
  void add(CLI::App& verb) override {
    verb.footer("Example: msprof mfu traces --peak-tflops 1.2");
    input_.add(verb);
    output_.add(verb);
    output_.add_top(verb);
    output_.add_names(verb);
    verb.add_option("--peak-tflops", peak_tflops_, "Peak of one rank's device in TFLOP/s, for HFU and MFU")
        ->check(positive_number());
    verb.add_option("--model-flops", model_flops_,
                    "FLOPs that the model needs per step, over all ranks; needed for MFU")
        ->check(positive_number());
  }

  int run(const std::vector<std::string>& arguments) override {
    const std::vector<std::string> paths = input_.paths();
    if (paths.empty()) return 0;
    const profile::Store store = input_.load(paths);
    profile::AnalysisOptions options;
    options.steps = parse_list(output_.step, "--step");
    const std::vector<profile::Mfu> ranks = profile::analyze_mfu(store, options);
    for (const profile::Mfu& rank : ranks) {
      if (rank.unread_shapes == 0) continue;
      core::log_warning("profile", core::cat("rank ", rank.rank, ": the shapes of ", rank.unread_shapes,
                                             " calls could not be parsed: their FLOPs are not counted"));
    }
    const profile::Peak peak{peak_tflops_, model_flops_};
    const auto tables = [&](int64_t top) { return profile::mfu_tables(ranks, peak, top); };
    print_tables(
        output_, [&] { return profile::json_report(store, tables(output_.top), output_.report("mfu", arguments)); },
        tables);
    return input_.exit_code(store);
  }

 private:
  InputFlags input_;
  OutputFlags output_;
  double peak_tflops_ = 0, model_flops_ = 0;
};

}  // namespace

std::unique_ptr<Verb> mfu_verb() { return std::make_unique<MfuVerb>(); }

}  // namespace ms::tools::msprof
