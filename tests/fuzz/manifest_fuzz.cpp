// ckpt/manifest.h and its callers: a checkpoint's manifest as given, and with a corrected self-hash. The rank files
// that it names exist with the stated sizes and without content, so that the code after the parser is reached.
#include <filesystem>

#include "ckpt/inspect.h"
#include "ckpt/manifest.h"
#include "ckpt/optimizer_settings.h"
#include "ckpt/reader.h"
#include "ckpt/reshard.h"
#include "ckpt/resume_diff.h"
#include "ckpt/verify.h"
#include "core/io/json.h"
#include "tests/fuzz/reader.h"

namespace {

namespace fs = std::filesystem;
constexpr std::string_view kSelfKey = "\"self_xxh3\":\"";

std::string sealed(std::string text) {
  const size_t at = text.rfind(kSelfKey);
  if (at == std::string::npos || at + kSelfKey.size() + 17 > text.size()) return text;
  const uint64_t hash = ms::ckpt::manifest_self_hash(text, "fuzz");
  return text.replace(at + kSelfKey.size(), 16, ms::core::hex16(hash));
}

// A sparse file costs nothing at any size, up to the limit of the file system.
void make_files(const fs::path& folder, const ms::ckpt::Manifest& manifest) {
  for (const auto& file : manifest.files) {
    if (file.name.size() > 200) continue;
    ms::test::write_file(folder / file.name, "");
    std::error_code too_large;
    fs::resize_file(folder / file.name, static_cast<uint64_t>(file.bytes), too_large);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  const std::string text(fuzz::text_of(data, size));
  fuzz::read_or_refuse([&] { ckpt::parse_manifest(text, "fuzz"); });
  fuzz::read_or_refuse([&] {
    const std::string seal = sealed(text);
    const ckpt::Manifest manifest = ckpt::parse_manifest(seal, "fuzz");
    const std::string dumped = ckpt::dump_manifest(manifest);
    fuzz::require(ckpt::dump_manifest(ckpt::parse_manifest(dumped, "dumped")) == dumped, "dump and parse are inverse");

    const test::TemporaryFolder folder;
    test::write_file(folder / ckpt::kManifestName, seal);
    make_files(folder.path(), manifest);
    ckpt::verify_generation(folder.path(), {.fast = true});
    const auto source = ckpt::open_native(folder.path());
    ckpt::inspect_json(*source, "fuzz").dump();
    ckpt::inspect_text(*source, "fuzz", true);
    ckpt::optimizer_groups(*source);
    ckpt::settings_differences(*source, *source);
    ckpt::plan_reshard(*source, {.tensor_model_parallel_size = 2}, {});
  });
  return 0;
}
