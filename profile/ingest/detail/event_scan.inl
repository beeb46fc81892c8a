// The body of event_scan.cpp, compiled once per instruction set (no includes, no lambdas: a region's code must not
// leave it). MS_BLOCK bytes are looked at together; masks have a bit for each.

#if MS_SCAN_AVX2
constexpr int kBlock = 32;
struct Block {
  __m256i bytes;
};
MS_SCAN_INLINE Block load(const char* p) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))}; }
MS_SCAN_INLINE uint32_t equal(Block block, char c) {
  return static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(block.bytes, _mm256_set1_epi8(c))));
}
// Bytes from 0 to `c`, unsigned.
MS_SCAN_INLINE uint32_t at_most(Block block, char c) {
  return static_cast<uint32_t>(
      _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(block.bytes, _mm256_set1_epi8(c)), block.bytes)));
}
// '[' and '{' (or ']' and '}') differ in one bit.
MS_SCAN_INLINE uint32_t equal_but_case(Block block, char c) {
  return static_cast<uint32_t>(_mm256_movemask_epi8(
      _mm256_cmpeq_epi8(_mm256_or_si256(block.bytes, _mm256_set1_epi8(0x20)), _mm256_set1_epi8(c))));
}
#else
constexpr int kBlock = 8;
struct Block {
  const char* bytes;
};
MS_SCAN_INLINE Block load(const char* p) { return {p}; }
MS_SCAN_INLINE uint32_t equal(Block block, char c) {
  uint32_t mask = 0;
  for (int i = 0; i < kBlock; ++i) mask |= static_cast<uint32_t>(block.bytes[i] == c) << i;
  return mask;
}
MS_SCAN_INLINE uint32_t at_most(Block block, char c) {
  uint32_t mask = 0;
  for (int i = 0; i < kBlock; ++i) {
    mask |= static_cast<uint32_t>(static_cast<unsigned char>(block.bytes[i]) <= static_cast<unsigned char>(c)) << i;
  }
  return mask;
}
MS_SCAN_INLINE uint32_t equal_but_case(Block block, char c) {
  uint32_t mask = 0;
  for (int i = 0; i < kBlock; ++i) mask |= static_cast<uint32_t>((block.bytes[i] | 0x20) == c) << i;
  return mask;
}
#endif

MS_SCAN_INLINE const char* space_end(const char* p, const char* end) {
  if (static_cast<unsigned char>(*p) > ' ' || p >= end) return p;
  ++p;
  if (static_cast<unsigned char>(*p) > ' ' || p >= end) return p;
  for (; p < end; p += kBlock) {
    const uint32_t other = ~at_most(load(p), ' ') & static_cast<uint32_t>((uint64_t{1} << kBlock) - 1);
    if (other != 0) {
      p += __builtin_ctz(other);
      break;
    }
  }
  return p < end ? p : end;
}

// p is behind the opening quote; returns the closing one, or `end`.
MS_SCAN_INLINE const char* string_end(const char* p, const char* end, bool& escaped) {
  while (p < end) {
    const Block block = load(p);
    const uint32_t quotes = equal(block, '"'), slashes = equal(block, '\\'), both = quotes | slashes;
    if (both == 0) {
      p += kBlock;
      continue;
    }
    const int at = __builtin_ctz(both);
    if ((quotes >> at & 1) != 0) return p + at < end ? p + at : end;
    escaped = true;
    p += at + 2;
  }
  return end;
}

// Each bit of the result is the parity of the bits up to and with it: 1 from an opening quote to before its closing
// one.
MS_SCAN_INLINE uint64_t inside_quotes(uint64_t quotes) {
  for (int shift = 1; shift < 64; shift *= 2) quotes ^= quotes << shift;
  return quotes;
}

struct Masks {
  uint64_t quotes, slashes, opening, closing;
};
MS_SCAN_INLINE Masks masks_of(const char* p) {
  Masks out{0, 0, 0, 0};
  for (int at = 0; at < 64; at += kBlock) {
    const Block block = load(p + at);
    out.quotes |= uint64_t{equal(block, '"')} << at;
    out.slashes |= uint64_t{equal(block, '\\')} << at;
    out.opening |= uint64_t{equal_but_case(block, '{')} << at;
    out.closing |= uint64_t{equal_but_case(block, '}')} << at;
  }
  return out;
}

// p is at a bracket; returns what is behind its partner, or null where the buffer ends first. By 64 bytes, with the
// brackets inside strings masked out; a block with a backslash is read by its marks, one after the other.
MS_SCAN_INLINE const char* composite_end(const char* p, const char* end) {
  int64_t depth = 0;
  while (p < end) {
    const Masks masks = masks_of(p);
    if (masks.slashes == 0) {
      const uint64_t in_string = inside_quotes(masks.quotes);
      uint64_t opening = masks.opening & ~in_string, closing = masks.closing & ~in_string;
      const int64_t opened = __builtin_popcountll(opening), closed = __builtin_popcountll(closing);
      if (depth <= closed) {  // its end may be here
        for (uint64_t marks = opening | closing; marks != 0; marks &= marks - 1) {
          const int at = __builtin_ctzll(marks);
          depth += (opening >> at & 1) != 0 ? 1 : -1;
          if (depth == 0) return p + at < end ? p + at + 1 : nullptr;
        }
      } else {
        depth += opened - closed;
      }
      p += 64;
      if (in_string >> 63 == 0) continue;
      bool escaped = false;  // the block ends inside a string
      p = string_end(p, end, escaped);
      if (p >= end) return nullptr;
      ++p;
      continue;
    }
    uint64_t marks = masks.quotes | masks.opening | masks.closing;
    const char* next = p + 64;
    while (marks != 0) {
      const int at = __builtin_ctzll(marks);
      marks &= marks - 1;
      if (p + at >= end) return nullptr;
      if ((masks.quotes >> at & 1) != 0) {
        bool escaped = false;
        const char* quote = string_end(p + at + 1, end, escaped);
        if (quote >= end) return nullptr;
        if (quote + 1 < p + 64) {  // goes on in this block
          marks &= ~uint64_t{0} << (quote + 1 - p);
          continue;
        }
        next = quote + 1;
        break;
      }
      depth += (masks.opening >> at & 1) != 0 ? 1 : -1;
      if (depth == 0) return p + at + 1;
    }
    p = next;
  }
  return nullptr;
}

MS_SCAN_INLINE const char* token_end(const char* p, const char* end) {
  while (p < end) {
    const Block block = load(p);
    const uint32_t marks = equal(block, ',') | equal_but_case(block, '}') | at_most(block, ' ');
    if (marks != 0) {
      p += __builtin_ctz(marks);
      return p < end ? p : end;
    }
    p += kBlock;
  }
  return end;
}

// Reads one value; p is at its first byte. Returns what is behind it, null at the buffer's end, or sets `wrong`.
MS_SCAN_INLINE const char* read_value(const char* p, const char* end, Value& value, bool& wrong) {
  const char c = *p;
  value.escaped = false;
  if (c == '"') {
    const char* quote = string_end(p + 1, end, value.escaped);
    if (quote >= end) return nullptr;
    value.data = p + 1;
    value.size = static_cast<uint32_t>(quote - p - 1);
    value.kind = Kind::kString;
    return quote + 1;
  }
  if (c == '{' || c == '[') {
    const char* behind = composite_end(p, end);
    if (behind == nullptr) return nullptr;
    value.data = p;
    value.size = static_cast<uint32_t>(behind - p);
    value.kind = c == '{' ? Kind::kObject : Kind::kArray;
    return behind;
  }
  const char* behind = token_end(p, end);
  if (behind >= end) return nullptr;
  const bool digit = static_cast<unsigned char>(c - '0') < 10;
  if (!digit && c != '-' && static_cast<unsigned char>((c | 0x20) - 'a') >= 26) {
    wrong = true;
    return nullptr;
  }
  value.data = p;
  value.size = static_cast<uint32_t>(behind - p);
  value.kind = digit || c == '-' ? Kind::kNumber : Kind::kLiteral;
  for (uint32_t i = 1; value.kind == Kind::kLiteral && i < value.size; ++i) {
    if (static_cast<unsigned char>((p[i] | 0x20) - 'a') >= 26) wrong = true;
  }
  return wrong ? nullptr : behind;
}

MS_SCAN_INLINE void scan_argument(const char* key, uint32_t size, const Value& value, ScannedEvent& event) {
#define MS_TRY(id, spelling)                                                                        \
  if (size == sizeof(spelling) - 1 && __builtin_memcmp(key, spelling, sizeof(spelling) - 1) == 0) { \
    event.present |= uint64_t{1} << static_cast<unsigned>(Arg::id);                                 \
    event.arguments[static_cast<size_t>(Arg::id)] = value;                                          \
    return;                                                                                         \
  }
  // By length, so that a key is compared with one or two candidates.
  switch (size) {
    case 3:
      MS_TRY(kSeq, "Seq") MS_TRY(kTag, "Tag") break;
    case 4:
      MS_TRY(kName, "name") MS_TRY(kAddress, "Addr") break;
    case 5:
      MS_TRY(kBytes, "bytes")
      MS_TRY(kFlops, "flops") MS_TRY(kDtype, "dtype") MS_TRY(kMemoryBytes, "Bytes") break;
    case 6:
      MS_TRY(kStream, "stream") MS_TRY(kDevice, "device") break;
    case 8:
      MS_TRY(kCommsId, "Comms Id")
      MS_TRY(kAsync, "Is async") MS_TRY(kSourceRank, "Src Rank") MS_TRY(kDestinationRank, "Dst Rank") break;
    case 9:
      MS_TRY(kDeviceId, "Device Id") MS_TRY(kTaskType, "Task Type") break;
    case 10:
      MS_TRY(kInputDims, "Input Dims") MS_TRY(kCallStack, "Call stack") MS_TRY(kInputType, "Input type") break;
    case 11:
      MS_TRY(kCorrelation, "correlation")
      MS_TRY(kExternalId, "External id") MS_TRY(kOldExternalId, "external id") MS_TRY(kDeviceType, "Device Type") break;
    case 13:
      MS_TRY(kInElements, "In msg nelems") MS_TRY(kConnectionId, "connection_id") break;
    case 14:
      MS_TRY(kOutElements, "Out msg nelems")
      MS_TRY(kTotalReserved, "Total Reserved")
      MS_TRY(kSyncKind, "cuda_sync_kind") MS_TRY(kWaitOnStream, "wait_on_stream") break;
    case 15:
      MS_TRY(kCollectiveName, "Collective name")
      MS_TRY(kTotalAllocated, "Total Allocated") break;
    case 18:
      MS_TRY(kGroupName, "Process Group Name") break;
    case 19:
      MS_TRY(kGroupRanks, "Process Group Ranks") break;
    case 33:
      MS_TRY(kWaitOnCorrelation, "wait_on_cuda_event_record_corr_id") break;
    default:
      break;
  }
#undef MS_TRY
}

MS_SCAN_INLINE void scan_field(const char* key, uint32_t size, const Value& value, ScannedEvent& event) {
  switch (size) {
    case 2:
      if (key[0] == 'p' && key[1] == 'h') event.ph = value;
      if (key[0] == 't' && key[1] == 's') event.ts = value;
      if (key[0] == 'i' && key[1] == 'd') event.id = value;
      break;
    case 3:
      if (__builtin_memcmp(key, "cat", 3) == 0) event.cat = value;
      if (__builtin_memcmp(key, "dur", 3) == 0) event.dur = value;
      if (__builtin_memcmp(key, "pid", 3) == 0) event.pid = value;
      if (__builtin_memcmp(key, "tid", 3) == 0) event.tid = value;
      if (__builtin_memcmp(key, "id2", 3) == 0 && !event.id) event.id = value;
      break;
    case 4:
      if (__builtin_memcmp(key, "name", 4) == 0) event.name = value;
      break;
    case 5:
      if (__builtin_memcmp(key, "scope", 5) == 0) event.scope = value;
      break;
    default:
      break;
  }
}

// The members of an object from its brace on. Depth 0: an event, whose "args" are read one level down; 1: arguments.
template <int kDepth>
Scan scan_members(const char* p, const char* end, ScannedEvent& event, ArgumentFilter* filter,
                  const char*& behind_object) {
  p = space_end(p + 1, end);
  if (p >= end) return Scan::kCut;
  while (*p != '}') {
    if (*p != '"') return Scan::kWrong;
    const char* key = p + 1;
    bool escaped = false, wrong = false;
    const char* quote = string_end(key, end, escaped);
    if (quote >= end) return Scan::kCut;
    const auto size = static_cast<uint32_t>(quote - key);
    p = space_end(quote + 1, end);
    if (p >= end) return Scan::kCut;
    if (*p != ':') return Scan::kWrong;
    p = space_end(p + 1, end);
    if (p >= end) return Scan::kCut;
    if (kDepth == 0 && *p == '{' && size == 4 && __builtin_memcmp(key, "args", 4) == 0) {
      const char* behind = nullptr;
      if (filter == nullptr || filter->wants_arguments(event)) {
        const Scan scan = scan_members<1>(p, end, event, filter, behind);
        if (scan != Scan::kWhole) return scan;
      } else {
        behind = composite_end(p, end);
        if (behind == nullptr) return Scan::kCut;
      }
      event.args.data = p;
      event.args.size = static_cast<uint32_t>(behind - p);
      event.args.kind = Kind::kObject;
      p = behind;
    } else {
      Value value;
      const char* behind = read_value(p, end, value, wrong);
      if (behind == nullptr) return wrong ? Scan::kWrong : Scan::kCut;
      if (kDepth == 0) {
        scan_field(key, size, value, event);
      } else {
        scan_argument(key, size, value, event);
      }
      p = behind;
    }
    p = space_end(p, end);
    if (p >= end) return Scan::kCut;
    if (*p == ',') {
      p = space_end(p + 1, end);
      if (p >= end) return Scan::kCut;
    } else if (*p != '}') {
      return Scan::kWrong;
    }
  }
  behind_object = p + 1;
  return Scan::kWhole;
}

Scan scan_event(const char* begin, const char* end, ScannedEvent& event, ArgumentFilter* filter) {
  event.ph = event.name = event.cat = event.ts = event.dur = event.pid = event.tid = Value{};
  event.id = event.scope = event.args = Value{};
  event.present = 0;
  return scan_members<0>(begin, end, event, filter, event.end);
}

Scan skip_value(const char* begin, const char* end, const char*& next, Value* out) {
  Value value;
  bool wrong = false;
  next = read_value(begin, end, value, wrong);
  if (out != nullptr) *out = value;
  return next != nullptr ? Scan::kWhole : wrong ? Scan::kWrong : Scan::kCut;
}

const char* skip_space(const char* begin, const char* end) { return begin < end ? space_end(begin, end) : end; }
