// profile/ingest/router_trace.h: routing traces and metrics of experts, up to the load of experts and the report.
#include "profile/ingest/load.h"
#include "profile/report/html_report.h"
#include "profile/report/text_report.h"
#include "profile/sections.h"
#include "tests/fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  static const std::string path = fuzz::folder() / "router_trace_rank0.jsonl";
  test::write_file(path, std::string(fuzz::text_of(data, size)));
  fuzz::read_or_refuse([&] {
    const profile::Store store = profile::load({path}, {});
    const profile::Results results = profile::analyze(store, profile::sections::every());
    profile::tables_text(store, results, 10);
    profile::html_report(store, results, {"fuzz"});
  });
  return 0;
}
