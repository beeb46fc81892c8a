// Declares the families; each is defined in its own file.
#pragma once

#include "convert/family.h"

namespace ms::convert {

extern const Family kLlama, kMistral, kQwen2, kQwen3, kGemma2, kPhi3, kGlm, kGlm4, kGpt2;
extern const Family kMixtral, kQwen2Moe, kQwen3Moe, kGlm4Moe, kDeepseekV2, kDeepseekV3;
extern const Family kOlmo2, kOlmoe, kStarcoder2, kGranite, kSmolLm3, kInternLm2, kErnie45, kGemma3Text, kGptNeox,
    kNemotron;

}  // namespace ms::convert
