// Pickles that hold plain values only (numbers, texts, lists, dictionaries), as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ms::profile {

// Lists and tuples become arrays; keys of dictionaries must be texts. Nothing is executed: of calls only those by which
// PyTorch marks lists of one type are known (torch.jit._pickle). Throws kCorruptData and kUnsupported, beginning with
// `where`; also for values nested or repeated so often that they would need more memory than the file justifies.
nlohmann::json plain_pickle(std::string bytes, const std::string& where);

}  // namespace ms::profile
