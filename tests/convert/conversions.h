// Checks for every conversion: targets come back byte for byte and leave nothing after a disk failure or an interrupt;
// sources read every tensor.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <string>

#include "convert/convert.h"
#include "convert/huggingface.h"
#include "core/error.h"
#include "tests/convert/whole_tensor.h"
#include "tests/support/fault_injection.h"
#include "tests/support/files_of.h"
#include "tests/support/thrown.h"

namespace ms::test {

// The source's tensors of `role` equal the tensors of a transformers folder, and none is missing.
inline void expect_equals_folder(ckpt::Source& source, core::TensorRole role, const std::string& folder) {
  const auto wanted = convert::open_huggingface(folder);
  EXPECT_GT(wanted->shards().num_tensors(), 5U);
  for (size_t t = 0; t < wanted->shards().num_tensors(); ++t) {
    const std::string key(wanted->shards().key(static_cast<int32_t>(t)));
    const auto bytes = whole_tensor(*wanted, key, core::TensorRole::kParam);
    EXPECT_FALSE(bytes.empty());
    EXPECT_EQ(whole_tensor(source, key, role), bytes) << core::role_name(role) << " of " << key;
  }
}

// Converts checkpoint `from`, which was made from the transformers folder `model`, back to a folder `to` and compares
// the two.
inline void expect_folder_comes_back(const std::string& from, const std::string& model, const std::string& to) {
  convert::ConvertOptions back;
  back.load_dir = from;
  back.save_dir = to;
  back.save_model_type = convert::Format::kHuggingFace;
  back.hf_cfg_dir = model;
  if (model.ends_with("hf_llama_tiny_sharded")) back.max_shard_size_bytes = 8'000;
  convert::convert_checkpoint(back);
  for (const auto& entry : std::filesystem::directory_iterator(model)) {
    const std::string name = entry.path().filename().string();
    if (name == "reference.json" || name == "generation_config.json") continue;  // not part of the model
    EXPECT_TRUE(read_file(core::cat(to, "/", name)) == read_file(entry.path().string())) << name;
  }
}

// Whichever disk call fails, the conversion succeeds or reports one disk error. look: checks the files that exist then,
// and restores the folder.
inline void expect_survives_disk_errors(const convert::ConvertOptions& options, const std::function<void()>& look) {
  using Kind = FaultInjection::Kind;
  for (const Kind kind : {Kind::kWrite, Kind::kFsync, Kind::kAllocate, Kind::kRename}) {
    int failures = 0;
    for (const int nth : {0, 1, 2, 3, 5, 8, 16, 64}) {
      SCOPED_TRACE(core::cat(static_cast<int>(kind), " ", nth));
      try {  // the search for the fastest write path falls back to another one
        const FaultInjection disk(kind, nth, ENOSPC);
        convert::convert_checkpoint(options);
      } catch (const core::Error& error) {
        EXPECT_EQ(error.code(), core::ErrorCode::kIo) << error.what();
        ++failures;
      }
      look();
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_GT(failures, 0) << static_cast<int>(kind);
  }
}

// Interrupts a conversion: `folder` is as empty as before.
inline void expect_stop_leaves_nothing(convert::ConvertOptions options, const std::filesystem::path& folder) {
  int asked = 0;
  options.execute.stopped = [&] { return ++asked > 20; };
  const Thrown thrown = thrown_by([&] { convert::convert_checkpoint(options); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kIo);
  EXPECT_THAT(thrown.text, testing::HasSubstr("interrupted"));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

}  // namespace ms::test
