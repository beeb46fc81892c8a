// What every target must do: come back byte for byte, leave nothing where a disk fails or the user stops it; and what
// every source must read.
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
#include "tests/support/files_of.h"
#include "tests/support/sick_disk.h"
#include "tests/support/thrown.h"

namespace ms::test {

// Tensors of `role` of the source are those of a folder of transformers, all of them.
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

// The folder `model` of transformers, which has become the checkpoint `from`, is made of it again in `to`.
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
    if (name == "reference.json" || name == "generation_config.json") continue;  // no part of the model
    EXPECT_TRUE(read_file(core::cat(to, "/", name)) == read_file(entry.path().string())) << name;
  }
}

// Whichever call of the disk fails: one error of the disk, or none. look: at what is there then; it puts back what was.
inline void expect_survives_sick_disk(const convert::ConvertOptions& options, const std::function<void()>& look) {
  using Kind = SickDisk::Kind;
  for (const Kind kind : {Kind::kWrite, Kind::kFsync, Kind::kAllocate, Kind::kRename}) {
    int failures = 0;
    for (const int nth : {0, 1, 2, 3, 5, 8, 16, 64}) {
      SCOPED_TRACE(core::cat(static_cast<int>(kind), " ", nth));
      try {  // what looks for the fastest way of writing takes another if one fails
        const SickDisk disk(kind, nth, ENOSPC);
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

// Stopped under way, `folder` is as empty as it was.
inline void expect_stop_leaves_nothing(convert::ConvertOptions options, const std::filesystem::path& folder) {
  int asked = 0;
  options.execute.stopped = [&] { return ++asked > 20; };
  const Thrown thrown = thrown_by([&] { convert::convert_checkpoint(options); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kIo);
  EXPECT_THAT(thrown.text, testing::HasSubstr("interrupted"));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

}  // namespace ms::test
