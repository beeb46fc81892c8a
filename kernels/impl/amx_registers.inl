// Helpers for AMX instructions.

// Holds the tile registers in use; after release the system need not save tiles on a context switch.
class TilesInUse {
 public:
  TilesInUse() {
    struct alignas(64) Layout {
      uint8_t palette = 1, first_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    static constexpr Layout kLayout;
    // Not _tile_loadconfig: GCC 12 takes its operand to be shorter than 64 bytes.
    asm volatile("ldtilecfg %0" : : "m"(kLayout));
  }
  ~TilesInUse() { _tile_release(); }
  TilesInUse(const TilesInUse&) = delete;
  TilesInUse& operator=(const TilesInUse&) = delete;
};

// GCC's tile loads and stores do not declare the memory they access, so no access may be moved across this.
MS_INLINE void memory_barrier() { asm volatile("" : : : "memory"); }
