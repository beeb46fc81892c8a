#include "tools/msprof/hta.h"

#include "core/error.h"
#include "profile/analysis/hta_results.h"
#include "profile/report/hta_tables.h"

namespace ms::tools::msprof {

void add_compat_flag(CLI::App& verb, std::string& compat) {
  verb.add_option("--compat", compat, "hta: count as Holistic Trace Analysis 0.6.1 does, to compare with its results")
      ->check(CLI::IsMember({"hta"}));
}

int run_hta(const HtaRequest& request, const InputFlags& given, const OutputFlags& output,
            const std::vector<std::string>& arguments) {
  InputFlags input = given;
  const bool keep_last_step = input.last_step == "keep";
  input.last_step = "keep";  // dropped by HTA's method instead of load()'s
  const std::vector<std::string> paths = input.paths();
  if (paths.empty()) return 0;
  if (request.unsupported || !output.step.empty() || output.top != OutputFlags().top) {
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        core::cat(request.verb, " --compat hta analyses whole traces: it does not support --step, --per-step, ",
                  "--top, --align, --queue-limit, --collapsed and --counters"));
  }
  profile::Store store = input.load(paths, /*keep_file_order=*/true);
  const profile::HtaResults results = profile::hta_results(store, keep_last_step, request.consecutive_kernel_delay_ns);
  std::vector<profile::DataTable> tables =
      request.page ? profile::hta_tables(results) : profile::hta_breakdown_tables(results);
  print_tables(
      output,
      [&] {
        const profile::ReportOptions options = output.report(request.verb, arguments);
        return request.page ? profile::json_report(store, results, options)
                            : profile::json_report(store, tables, options);
      },
      [&](int64_t) { return tables; });
  return input.exit_code(store);
}

}  // namespace ms::tools::msprof
