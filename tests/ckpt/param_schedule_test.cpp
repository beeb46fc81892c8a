// Schedules stored in checkpoints, compared with Megatron's own OptimizerParamScheduler
// (tests/data/param_scheduler.json, by make_scheduler_golden.py).
#include "ckpt/param_schedule.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::ckpt {
namespace {

using nlohmann::json;

json golden() {
  std::ifstream file(MS_TEST_DATA "/param_scheduler.json");
  return json::parse(file);
}

TEST(ParamScheduleOfCheckpoint, ReadFromJsonGivesMegatronsRates) {
  const json entries = golden();
  ASSERT_GE(entries.size(), 12U);
  for (const json& entry : entries) {
    const auto schedule = schedule_from_json(entry["schedule"]);
    ASSERT_TRUE(schedule.has_value()) << entry["schedule"].dump();
    for (const json& point : entry["points"]) {
      EXPECT_NEAR(learning_rate(*schedule, point[0]), point[1], 1e-18)
          << entry["schedule"].dump() << " at " << point[0];
      EXPECT_NEAR(weight_decay(*schedule, point[0]), point[2], 1e-16) << entry["schedule"].dump() << " at " << point[0];
    }
  }
}

TEST(ParamScheduleOfCheckpoint, WithoutRateIsNullopt) {
  json stated = golden()[0]["schedule"];
  EXPECT_FALSE(schedule_from_json(json()).has_value());
  for (const char* key : {"max_lr", "min_lr", "lr_warmup_steps", "lr_decay_steps", "lr_decay_style"}) {
    json less = stated;
    less.erase(key);
    EXPECT_FALSE(schedule_from_json(less).has_value()) << key;
  }
}

TEST(ParamScheduleOfCheckpoint, KeepsDecoupledBounds) {
  ParamSchedule schedule;
  schedule.max_lr = 1e-3;
  schedule.lr_decay_steps = 10;
  schedule.lr_decay_style = "linear";
  EXPECT_FALSE(schedule_to_json(schedule).contains("decoupled_lr"));
  EXPECT_FALSE(decoupled_schedule(*schedule_from_json(schedule_to_json(schedule))));
  schedule.decoupled_lr = 4e-4;
  schedule.decoupled_min_lr = 2e-4;
  json saved = schedule_to_json(schedule);
  const auto decoupled = decoupled_schedule(*schedule_from_json(saved));
  ASSERT_TRUE(decoupled);
  EXPECT_DOUBLE_EQ(learning_rate(*decoupled, 5), 3e-4);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 5), 5e-4);
  saved["decoupled_lr"] = "fast";
  EXPECT_EQ(ms::test::code_of([&] { schedule_from_json(saved); }), core::ErrorCode::kCorruptData);
}

TEST(ParamScheduleOfCheckpoint, WsdWithoutLengthIsNullopt) {
  // As Megatron saves it.
  const json stated = {
      {"max_lr", 1.0}, {"min_lr", 0.0}, {"lr_warmup_steps", 0}, {"lr_decay_steps", 9}, {"lr_decay_style", "WSD"}};
  EXPECT_FALSE(schedule_from_json(stated).has_value());
}

TEST(ParamScheduleOfCheckpoint, FieldsOfOtherTypesThrowCorruptData) {
  const json stated = golden()[0]["schedule"];
  for (const auto& [key, value] : {std::pair<const char*, json>("max_lr", "1e-3"),
                                   {"lr_decay_steps", -1.0},
                                   {"lr_decay_style", 3},
                                   {"lr_warmup_steps", json::array()}}) {
    json other = stated;
    other[key] = value;
    EXPECT_EQ(ms::test::code_of([&] { schedule_from_json(other); }), core::ErrorCode::kCorruptData) << key;
  }
}

}  // namespace
}  // namespace ms::ckpt
