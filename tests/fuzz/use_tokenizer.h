// What the tokenizer fuzz targets do with an accepted tokenizer.
#pragma once

#include <vector>

#include "tests/fuzz/reader.h"
#include "train/data/tokenizer.h"

namespace ms::fuzz {

inline void use_tokenizer(train::Tokenizer& tokenizer) {
  for (const char* text :
       {"", " ", "Hello world, it's 1234!  \n\n<|special|>x<user> <mask>  y",
        "caf\u00e9 \u65e5\u672c \U0001F642 e\u0301", "\xff\xc3", "<0x41><s></s><unk>\u2581\u2581a"}) {
    std::vector<int32_t> ids;
    tokenizer.encode(text, ids);
    for (const int32_t id : ids) require(id >= 0 && id < tokenizer.vocab_size(), "ids are below the vocabulary size");
    tokenizer.decode(ids);
  }
  require(!tokenizer.eod() || *tokenizer.eod() < tokenizer.vocab_size(), "the end of document is an id");
}

}  // namespace ms::fuzz
