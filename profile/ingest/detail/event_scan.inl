// The body of event_scan.cpp, compiled once per instruction set (no includes and no lambdas, because inlined code must
// stay within the target region). Blocks of kBlock bytes are compared at once; masks have one bit per byte.

#if MS_SCAN_ISA == 2
constexpr int kBlock = 64;
using Mask = uint64_t;
struct Block {
  __m512i bytes;
};
MS_SCAN_INLINE Block load(const char* p) { return {_mm512_loadu_si512(p)}; }
MS_SCAN_INLINE Mask equal(Block block, char c) { return _mm512_cmpeq_epi8_mask(block.bytes, _mm512_set1_epi8(c)); }
// Bytes from 0 to `c`, unsigned.
MS_SCAN_INLINE Mask at_most(Block block, char c) { return _mm512_cmple_epu8_mask(block.bytes, _mm512_set1_epi8(c)); }
// '[' and '{' (and ']' and '}') differ in one bit.
MS_SCAN_INLINE Mask equal_but_case(Block block, char c) {
  return _mm512_cmpeq_epi8_mask(_mm512_or_si512(block.bytes, _mm512_set1_epi8(0x20)), _mm512_set1_epi8(c));
}
#elif MS_SCAN_ISA == 1
constexpr int kBlock = 32;
using Mask = uint32_t;
struct Block {
  __m256i bytes;
};
MS_SCAN_INLINE Mask bits(__m256i bytes) { return static_cast<Mask>(_mm256_movemask_epi8(bytes)); }
MS_SCAN_INLINE Block load(const char* p) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))}; }
MS_SCAN_INLINE Mask equal(Block block, char c) { return bits(_mm256_cmpeq_epi8(block.bytes, _mm256_set1_epi8(c))); }
MS_SCAN_INLINE Mask at_most(Block block, char c) {
  return bits(_mm256_cmpeq_epi8(_mm256_min_epu8(block.bytes, _mm256_set1_epi8(c)), block.bytes));
}
MS_SCAN_INLINE Mask equal_but_case(Block block, char c) {
  return bits(_mm256_cmpeq_epi8(_mm256_or_si256(block.bytes, _mm256_set1_epi8(0x20)), _mm256_set1_epi8(c)));
}
#else
constexpr int kBlock = 8;
using Mask = uint8_t;
struct Block {
  const char* bytes;
};
MS_SCAN_INLINE Block load(const char* p) { return {p}; }
MS_SCAN_INLINE Mask equal(Block block, char c) {
  unsigned mask = 0;
  for (int i = 0; i < kBlock; ++i) mask |= static_cast<unsigned>(block.bytes[i] == c) << i;
  return static_cast<Mask>(mask);
}
MS_SCAN_INLINE Mask at_most(Block block, char c) {
  unsigned mask = 0;
  for (int i = 0; i < kBlock; ++i) {
    mask |= static_cast<unsigned>(static_cast<unsigned char>(block.bytes[i]) <= static_cast<unsigned char>(c)) << i;
  }
  return static_cast<Mask>(mask);
}
MS_SCAN_INLINE Mask equal_but_case(Block block, char c) {
  unsigned mask = 0;
  for (int i = 0; i < kBlock; ++i) mask |= static_cast<unsigned>((block.bytes[i] | 0x20) == c) << i;
  return static_cast<Mask>(mask);
}
#endif
MS_SCAN_INLINE int first_of(uint64_t mask) { return __builtin_ctzll(mask); }  // mask must not be 0

MS_SCAN_INLINE const char* space_end(const char* p, const char* end) {
  if (static_cast<unsigned char>(*p) > ' ' || p >= end) return p;
  ++p;
  if (static_cast<unsigned char>(*p) > ' ' || p >= end) return p;
  for (; p < end; p += kBlock) {
    const auto other = static_cast<Mask>(~at_most(load(p), ' '));
    if (other != 0) {
      p += first_of(other);
      break;
    }
  }
  return p < end ? p : end;
}

// p points after the opening quote; returns the closing one, or `end`.
MS_SCAN_APART const char* string_end(const char* p, const char* end, bool& escaped) {
  while (p < end) {
    const Block block = load(p);
    const Mask quotes = equal(block, '"'), slashes = equal(block, '\\');
    const auto both = static_cast<Mask>(quotes | slashes);
    if (both == 0) {
      p += kBlock;
      continue;
    }
    const int at = first_of(both);
    if ((quotes >> at & 1) != 0) return p + at < end ? p + at : end;
    escaped = true;
    p += at + 2;
  }
  return end;
}

// Each bit of the result is the parity of the bits up to and including it: 1 from an opening quote up to, but not
// including, its closing one.
MS_SCAN_INLINE uint64_t inside_quotes(uint64_t quotes) {
#if MS_SCAN_ISA > 0
  // Carry-less multiplication by all ones: every bit is the parity of the bits up to it. Every CPU with AVX2 has it.
  return static_cast<uint64_t>(
      _mm_cvtsi128_si64(_mm_clmulepi64_si128(_mm_set_epi64x(0, static_cast<int64_t>(quotes)), _mm_set1_epi8(-1), 0)));
#else
  for (int shift = 1; shift < 64; shift *= 2) quotes ^= quotes << shift;
  return quotes;
#endif
}

struct Masks {
  uint64_t quotes, slashes, opening, closing;
};
MS_SCAN_INLINE Masks masks_of(const char* p, char open, char close) {
  Masks out{0, 0, 0, 0};
  for (int at = 0; at < 64; at += kBlock) {
    const Block block = load(p + at);
    out.quotes |= uint64_t{equal(block, '"')} << at;
    out.slashes |= uint64_t{equal(block, '\\')} << at;
    out.opening |= uint64_t{equal(block, open)} << at;
    out.closing |= uint64_t{equal(block, close)} << at;
  }
  return out;
}

// p points at a bracket; returns the byte after its partner, or null if the buffer ends first. Only brackets of the
// same kind count: those of the other kind are balanced between them. Works in blocks of 64 bytes, with brackets inside
// strings masked out; a block with a backslash is processed bracket by bracket.
MS_SCAN_APART const char* composite_end(const char* p, const char* end) {
  const char open = *p, close = static_cast<char>(open + 2);
  int64_t depth = 0;
  while (p < end) {
    const Masks masks = masks_of(p, open, close);
    if (masks.slashes == 0) {
      const uint64_t in_string = inside_quotes(masks.quotes);
      uint64_t opening = masks.opening & ~in_string;
      for (uint64_t closing = masks.closing & ~in_string; closing != 0; closing &= closing - 1) {
        const uint64_t before = closing ^ (closing - 1);
        depth += __builtin_popcountll(opening & before) - 1;
        opening &= ~before;
        if (depth == 0) {
          p += first_of(closing);
          return p < end ? p + 1 : nullptr;
        }
      }
      depth += __builtin_popcountll(opening);
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
      const int at = first_of(marks);
      marks &= marks - 1;
      if (p + at >= end) return nullptr;
      if ((masks.quotes >> at & 1) != 0) {
        bool escaped = false;
        const char* quote = string_end(p + at + 1, end, escaped);
        if (quote >= end) return nullptr;
        if (quote + 1 < p + 64) {  // the string ends in this block
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
    const auto marks = static_cast<Mask>(equal(block, ',') | equal_but_case(block, '}') | at_most(block, ' '));
    if (marks != 0) {
      p += first_of(marks);
      return p < end ? p : end;
    }
    p += kBlock;
  }
  return end;
}

// Reads one value; p points at its first byte. Returns the byte after it, or null at the buffer's end; sets `wrong` on
// a syntax error.
MS_SCAN_APART const char* read_value(const char* p, const char* end, Value& value, bool& wrong) {
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

// The argument or event field that a key names, or neither.
MS_SCAN_APART uint8_t argument_of(const char* key, uint32_t size) {
#define MS_TRY(id, spelling)                                                                        \
  if (size == sizeof(spelling) - 1 && __builtin_memcmp(key, spelling, sizeof(spelling) - 1) == 0) { \
    return static_cast<uint8_t>(Arg::id);                                                           \
  }
  // Switching on the length leaves one or two candidates to compare.
  switch (size) {
    case 3:
      MS_TRY(kSeq, "Seq") MS_TRY(kTag, "Tag") break;
    case 4:
      MS_TRY(kName, "name") MS_TRY(kAddress, "Addr") break;
    case 5:
      MS_TRY(kBytes, "bytes")
      MS_TRY(kFlops, "flops") MS_TRY(kDtype, "dtype") MS_TRY(kMemoryBytes, "Bytes") MS_TRY(kChunk, "chunk") break;
    case 6:
      MS_TRY(kStream, "stream") MS_TRY(kDevice, "device") break;
    case 8:
      MS_TRY(kCommsId, "Comms Id")
      MS_TRY(kAsync, "Is async") MS_TRY(kSourceRank, "Src Rank") MS_TRY(kDestinationRank, "Dst Rank") break;
    case 9:
      MS_TRY(kDeviceId, "Device Id") MS_TRY(kTaskType, "Task Type") break;
    case 10:
      MS_TRY(kInputDims, "Input Dims")
      MS_TRY(kCallStack, "Call stack")
      MS_TRY(kInputType, "Input type") MS_TRY(kMicrobatch, "microbatch") break;
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
      MS_TRY(kTotalAllocated, "Total Allocated") MS_TRY(kConcreteInputs, "Concrete Inputs") break;
    case 18:
      MS_TRY(kGroupName, "Process Group Name") break;
    case 19:
      MS_TRY(kGroupRanks, "Process Group Ranks") break;
    case 23:
      MS_TRY(kBandwidth, "memory bandwidth (GB/s)") break;
    case 33:
      MS_TRY(kWaitOnCorrelation, "wait_on_cuda_event_record_corr_id") break;
    default:
      break;
  }
#undef MS_TRY
  return UINT8_MAX;
}

MS_SCAN_APART uint16_t field_of(const char* key, uint32_t size) {
#define MS_TRY(member, spelling)                                    \
  if (__builtin_memcmp(key, spelling, sizeof(spelling) - 1) == 0) { \
    return static_cast<uint16_t>(offsetof(ScannedEvent, member));   \
  }
  switch (size) {
    case 2:
      MS_TRY(ph, "ph") MS_TRY(ts, "ts") MS_TRY(id, "id") break;
    case 3:
      MS_TRY(cat, "cat")
      MS_TRY(dur, "dur")
      MS_TRY(pid, "pid") MS_TRY(tid, "tid") MS_TRY(id2, "id2") break;
    case 4:
      MS_TRY(name, "name") break;
    case 5:
      MS_TRY(scope, "scope") break;
    default:
      break;
  }
#undef MS_TRY
  return static_cast<uint16_t>(offsetof(ScannedEvent, other));
}

// Parses the segment at p into `out`.
MS_SCAN_APART Scan parse_segment(const char* p, const char* end, Place place, Segment& out) {
  const char* begin = p;
  const bool in_args = place >= Place::kInArgs, first = place == Place::kEvent || place == Place::kInArgs;
  out.target = offsetof(ScannedEvent, other);
  out.present = 0;
  out.value_size = 0;
  out.place = place;
  out.kept = true;
  // Skip the quote of a string or the brace of an event; the brace of arguments belongs to the previous segment.
  if (place == Place::kEvent || place == Place::kAfterString || place == Place::kAfterArgString) ++p;
  p = space_end(p, end);
  if (p >= end) return Scan::kCut;
  if (!first && *p == ',') {
    p = space_end(p + 1, end);
    if (p >= end) return Scan::kCut;
  } else if (!first && *p != '}') {
    return Scan::kWrong;
  }
  if (*p == '}') {
    ++p;
    out.then = in_args ? Segment::Then::kCloseArgs : Segment::Then::kCloseEvent;
    const char* brace = space_end(p, end);
    if (in_args && brace < end && *brace == '}') {
      out.then = Segment::Then::kCloseBoth;
      out.args_end = static_cast<uint32_t>(p - begin);
      p = brace + 1;
    }
  } else if (*p != '"') {
    return Scan::kWrong;
  } else {
    const char* key = p + 1;
    bool escaped = false;
    const char* quote = string_end(key, end, escaped);
    if (quote >= end) return Scan::kCut;
    const auto size = static_cast<uint32_t>(quote - key);
    p = space_end(quote + 1, end);
    if (p >= end) return Scan::kCut;
    if (*p != ':') return Scan::kWrong;
    p = space_end(p + 1, end);
    if (p >= end) return Scan::kCut;
    const bool args = !in_args && size == 4 && __builtin_memcmp(key, "args", 4) == 0;
    if (args && *p == '{') {
      out.then = Segment::Then::kOpenArgs;
      ++p;
    } else {
      out.kept = !args;  // "args" is not an object here; it may be one in the next event
      out.then = *p == '"' ? Segment::Then::kString : Segment::Then::kOther;
      if (*p == '"') ++p;
      const bool string = out.then == Segment::Then::kString;
      if (in_args) {
        out.after = string ? Place::kAfterArgString : Place::kAfterArg;
        if (const uint8_t argument = argument_of(key, size); argument != UINT8_MAX) {
          out.present = uint64_t{1} << argument;
          out.target = static_cast<uint16_t>(offsetof(ScannedEvent, arguments) + sizeof(Value) * argument);
        }
      } else {
        out.after = string ? Place::kAfterString : Place::kAfterValue;
        out.target = field_of(key, size);
      }
    }
  }
  const auto size = static_cast<size_t>(p - begin);
  out.size = static_cast<uint32_t>(size);
  out.kept = out.kept && size <= Segment::kMaxBytes;
  if (out.kept) {
    __builtin_memcpy(out.text, begin, size);
    out.mask = size == 64 ? ~uint64_t{0} : (uint64_t{1} << size) - 1;
  }
  return Scan::kWhole;
}

// Explicit stores instead of a loop: compilers turn the loop into a slow string instruction.
MS_SCAN_INLINE void clear_fields(ScannedEvent& event) {
  constexpr size_t kBytes = offsetof(ScannedEvent, present) - offsetof(ScannedEvent, ph);
  static_assert(kBytes == 192);
  char* fields = reinterpret_cast<char*>(&event.ph);
#if MS_SCAN_ISA == 2
  const __m512i zeros = _mm512_setzero_si512();
  _mm512_storeu_si512(fields, zeros);
  _mm512_storeu_si512(fields + 64, zeros);
  _mm512_storeu_si512(fields + 128, zeros);
#elif MS_SCAN_ISA == 1
  auto* blocks = reinterpret_cast<__m256i*>(fields);
  const __m256i zeros = _mm256_setzero_si256();
  _mm256_storeu_si256(blocks, zeros);
  _mm256_storeu_si256(blocks + 1, zeros);
  _mm256_storeu_si256(blocks + 2, zeros);
  _mm256_storeu_si256(blocks + 3, zeros);
  _mm256_storeu_si256(blocks + 4, zeros);
  _mm256_storeu_si256(blocks + 5, zeros);
#else
  __builtin_memset(fields, 0, kBytes);
#endif
  event.present = 0;
}

MS_SCAN_INLINE bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

// Compares the text of a segment, without what follows it.
MS_SCAN_INLINE bool same_text(const char* p, const Segment& segment) {
#if MS_SCAN_ISA == 2
  return _mm512_mask_cmpneq_epi8_mask(segment.mask, load(p).bytes, load(segment.text).bytes) == 0;
#elif MS_SCAN_ISA == 1
  uint64_t same = bits(_mm256_cmpeq_epi8(load(p).bytes, load(segment.text).bytes));
  if (segment.size > 32) {
    same |= uint64_t{bits(_mm256_cmpeq_epi8(load(p + 32).bytes, load(segment.text + 32).bytes))} << 32;
  }
  return (same & segment.mask) == segment.mask;
#else
  return __builtin_memcmp(p, segment.text, segment.size) == 0;
#endif
}

// A value that is not a string must follow directly: no further space, and no quote, which would make it a string.
MS_SCAN_INLINE bool begins_value(char c) { return static_cast<unsigned char>(c) > ' ' && c != '"'; }

// The segment at p: one of those seen here before, else parsed and remembered in `next`. Null if there is none; `scan`
// is then the reason.
MS_SCAN_APART Segment* find_segment(const char* p, const char* end, Place place, Segment::Ways& next,
                                    SegmentTable& table, Scan& scan) {
  for (size_t way = 0; way < Segment::kWays && next[way] != nullptr; ++way) {
    Segment* guess = next[way];
    if (!same_text(p, *guess) || (guess->then == Segment::Then::kOther && !begins_value(p[guess->size]))) continue;
    if (way > 0) {
      next[way] = next[way - 1];
      next[way - 1] = guess;
    }
    return guess;
  }
  Segment& scratch = table.scratch();
  const bool before_kept = &next != &scratch.next && &next != &scratch.next_skipped;
  Segment parsed;
  scan = parse_segment(p, end, place, parsed);
  if (scan != Scan::kWhole) return nullptr;
  Segment* found = parsed.kept ? table.keep(parsed) : nullptr;
  if (found == nullptr) {
    scratch = parsed;
    return &scratch;
  }
  if (before_kept) {
    for (size_t way = Segment::kWays - 1; way > 0; --way) next[way] = next[way - 1];
    next[0] = found;
  }
  return found;
}

// Returns `found`, the end of a value at p. Values of a segment often have the same length as the last one; the branch
// lets the CPU predict that and continue behind the value without waiting for the search.
MS_SCAN_INLINE const char* expect(const char* p, const char* found, Segment& segment) {
  uint32_t size = segment.value_size;
  if (found == p + size) {
    asm("" : "+r"(size));  // hides from the compiler that this equals `found`, which would restore the dependency
    return p + size;
  }
  segment.value_size = static_cast<uint32_t>(found - p);
  return found;
}

Scan scan_event(const char* begin, const char* end, ScannedEvent& event, ArgumentFilter* filter, SegmentTable& table) {
  clear_fields(event);
  const char* p = begin;
  Place place = Place::kEvent;
  Segment::Ways* next = &table.first();
  Scan scan = Scan::kWhole;
  while (true) {
    Segment* segment = (*next)[0];
    if (segment == nullptr || !same_text(p, *segment) ||
        (segment->then == Segment::Then::kOther && !begins_value(p[segment->size]))) {
      segment = find_segment(p, end, place, *next, table, scan);
      if (segment == nullptr) return scan;
    }
    const char* behind = p + segment->size;
    if (behind > end) return Scan::kCut;
    next = &segment->next;
    if (segment->then == Segment::Then::kString) {
      const Block block = load(behind);
      const Mask quotes = equal(block, '"');
      const auto marks = static_cast<Mask>(quotes | equal(block, '\\'));
      const Mask first = marks & static_cast<Mask>(-marks);
      bool escaped = false;
      const char* found = (quotes & first) != 0 ? behind + first_of(first) : string_end(behind, end, escaped);
      if (found >= end) return Scan::kCut;
      p = expect(behind, found, *segment);
      Value& value = *reinterpret_cast<Value*>(reinterpret_cast<char*>(&event) + segment->target);
      value.data = behind;
      value.size = static_cast<uint32_t>(p - behind);
      value.kind = Kind::kString;
      value.escaped = escaped;
      event.present |= segment->present;
      place = segment->after;
      continue;
    }
    if (segment->then == Segment::Then::kOther) {
      Value& value = *reinterpret_cast<Value*>(reinterpret_cast<char*>(&event) + segment->target);
      const Block block = load(behind);
      const auto marks = static_cast<Mask>(at_most(block, ',') | equal_but_case(block, '}'));
      const char* found = behind + first_of(uint64_t{marks} | uint64_t{1} << 63);
      if ((is_digit(*behind) || *behind == '-') && marks != 0 && found < end && (*found <= ' ' || *found >= ',')) {
        p = expect(behind, found, *segment);
        value.data = behind;
        value.size = static_cast<uint32_t>(p - behind);
        value.kind = Kind::kNumber;
        value.escaped = false;
      } else {
        bool wrong = false;
        Value read;
        p = read_value(behind, end, read, wrong);
        if (p == nullptr) return wrong ? Scan::kWrong : Scan::kCut;
        value = read;
      }
      event.present |= segment->present;
      place = segment->after;
      continue;
    }
    p = behind;
    place = Place::kAfterValue;
    switch (segment->then) {
      case Segment::Then::kCloseBoth:
        behind = p - segment->size + segment->args_end;
        [[fallthrough]];
      case Segment::Then::kCloseArgs:
        event.args.size = static_cast<uint32_t>(behind - event.args.data);
        if (segment->then == Segment::Then::kCloseArgs) continue;
        [[fallthrough]];
      case Segment::Then::kCloseEvent:
        event.end = p;
        if (!event.id) event.id = event.id2;
        return Scan::kWhole;
      default:  // kOpenArgs
        event.args.data = p - 1;
        event.args.kind = Kind::kObject;
        place = Place::kInArgs;
        if (filter != nullptr && !filter->wants_arguments(event)) {
          p = composite_end(p - 1, end);
          if (p == nullptr) return Scan::kCut;
          event.args.size = static_cast<uint32_t>(p - event.args.data);
          place = Place::kAfterValue;
          next = &segment->next_skipped;
        }
    }
  }
}

Scan skip_value(const char* begin, const char* end, const char*& next, Value* out) {
  Value value;
  bool wrong = false;
  next = read_value(begin, end, value, wrong);
  if (out != nullptr) *out = value;
  return next != nullptr ? Scan::kWhole : wrong ? Scan::kWrong : Scan::kCut;
}

const char* skip_space(const char* begin, const char* end) { return begin < end ? space_end(begin, end) : end; }
