// The hysteresis and growth trackers of megatron/core/optimizer/grad_scaler.py, computed by hand.
#include "train/optim/loss_scaler.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::train {
namespace {

TrainingConfig fp16_config() {
  TrainingConfig config;
  config.fp16 = true;
  config.initial_loss_scale = 1024;
  config.min_loss_scale = 128;
  config.loss_scale_window = 3;
  config.hysteresis = 2;
  return config;
}

TEST(LossScaler, IsOneWithoutFp16AndConstantWithLossScale) {
  LossScaler none{TrainingConfig{}};
  EXPECT_EQ(none.scale(), 1);
  TrainingConfig config = fp16_config();
  config.loss_scale = 64;
  LossScaler fixed{config};
  fixed.update(true);
  fixed.update(true);
  EXPECT_EQ(fixed.scale(), 64);
  EXPECT_FALSE(fixed.is_dynamic());
}

TEST(LossScaler, HysteresisHalvesAndAWindowDoubles) {
  LossScaler scaler{fp16_config()};
  const auto after = [&](bool found_inf) {
    scaler.update(found_inf);
    return scaler.scale();
  };
  EXPECT_EQ(after(true), 1024);  // hysteresis 2: the first overflow does not halve
  EXPECT_EQ(after(false), 1024);
  EXPECT_EQ(after(true), 512);  // one good step does not reset that
  EXPECT_EQ(after(true), 256);
  EXPECT_EQ(after(false), 256);
  EXPECT_EQ(after(false), 256);
  EXPECT_EQ(after(false), 512);  // three good steps double, and reset it
  EXPECT_EQ(after(true), 512);
  for (int i = 0; i < 5; ++i) after(true);
  EXPECT_EQ(scaler.scale(), 128);  // never below the minimum
}

TEST(LossScaler, RestoredOneContinuesEqually) {
  LossScaler first{fp16_config()};
  for (bool found_inf : {true, true, false, false}) first.update(found_inf);
  LossScaler second{fp16_config()};
  second.restore(first.state());
  EXPECT_EQ(second.state(), first.state());
  first.update(false);
  second.update(false);
  EXPECT_EQ(second.scale(), first.scale());
  EXPECT_EQ(second.scale(), 1024);
}

TEST(LossScaler, WindowShorterThanTheSavedOneIsFullAtOnce) {
  LossScaler scaler{fp16_config()};
  scaler.restore({{"scale", 256}, {"growth_tracker", 7}, {"hysteresis_tracker", -3}});
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 512);
}

TEST(LossScaler, RefusesInvalidCheckpointValues) {
  const nlohmann::json good = {{"scale", 256}, {"growth_tracker", 1}, {"hysteresis_tracker", 2}};
  for (const char* change :
       {R"({"scale": "much"})", R"({"scale": 0})", R"({"scale": null})", R"({"growth_tracker": 1e300})",
        R"({"growth_tracker": -1})", R"({"growth_tracker": 9223372036854775808})", R"({"hysteresis_tracker": 1.5})",
        R"({"hysteresis_tracker": null})"}) {
    nlohmann::json saved = good;
    saved.update(nlohmann::json::parse(change));
    LossScaler scaler{fp16_config()};
    EXPECT_EQ(test::thrown_by([&] { scaler.restore(saved); }).code, core::ErrorCode::kCorruptData) << change;
  }
}

}  // namespace
}  // namespace ms::train
