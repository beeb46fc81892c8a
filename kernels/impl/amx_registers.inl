// What AMX needs around its instructions.

// The tile registers, in use while this lives: after that the system has no tiles to save when threads change.
class TilesInUse {
 public:
  TilesInUse() {
    struct alignas(64) Layout {
      uint8_t palette = 1, first_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    static constexpr Layout kLayout;
    // Not _tile_loadconfig, whose operand GCC 12 takes to be shorter than 64 bytes.
    asm volatile("ldtilecfg %0" : : "m"(kLayout));
  }
  ~TilesInUse() { _tile_release(); }
  TilesInUse(const TilesInUse&) = delete;
  TilesInUse& operator=(const TilesInUse&) = delete;
};

// GCC's tile loads and stores do not say what memory they touch: nothing may cross this.
MS_INLINE void memory_barrier() { asm volatile("" : : : "memory"); }
