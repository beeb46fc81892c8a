// profile/ingest: a folder of Ascend files, up to its analyses. The input is its files, concatenated in the order
// below, with a byte 1 between them; an empty file is absent.
#include <filesystem>

#include "profile/ingest/load.h"
#include "profile/sections.h"
#include "tests/fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  static const std::filesystem::path root = fuzz::folder().path() / "host_1_ascend_pt",
                                     output = root / "ASCEND_PROFILER_OUTPUT";
  static const std::filesystem::path files[] = {root / "profiler_info_0.json",  output / "kernel_details.csv",
                                                output / "step_trace_time.csv", output / "memory_record.csv",
                                                output / "operator_memory.csv", output / "communication_matrix.json",
                                                output / "trace_view.json"};
  std::filesystem::create_directories(output);
  std::string_view rest = fuzz::text_of(data, size);
  for (const std::filesystem::path& file : files) {
    const std::string_view text = rest.substr(0, rest.find('\1'));
    rest.remove_prefix(std::min(rest.size(), text.size() + 1));
    if (text.empty()) {
      std::filesystem::remove(file);
    } else {
      test::write_file(file.string(), std::string(text));
    }
  }
  fuzz::read_or_refuse([&] { profile::analyze(profile::load({root.string()}, {}), profile::sections::every()); });
  return 0;
}
