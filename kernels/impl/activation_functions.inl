// The activation functions of activation.h on vectors.

// An activation's value and derivative, each multiplied by d.
struct Tangent {
  Vec value, slope;
};

// Each activation at x, with the accuracy that a result of type T needs.
struct Silu {
  static MS_INLINE Vec minus_x(Vec x) { return broadcast(-1.44269504F) * x; }  // exponent of 2: x / ln(2)
  template <class T>
  static MS_INLINE Vec value(Vec x) {
    return x * logistic2<T>(minus_x(x));
  }
  template <class T>
  static MS_INLINE Tangent tangent(Vec d, Vec x) {
    const Logistic s = logistic2_and_rest<T>(minus_x(x));
    const Vec ds = d * s.value, y = ds * x;
    return {y, fma(y, s.rest, ds)};
  }
};

// 0.5 (1 + tanh(u)) = 1 / (1 + e^(-2 u)); this form has no cancellation.
struct GeluTanh {
  // As an exponent of 2: -2 / ln(2) sqrt(2 / pi) (x + 0.044715 x^3).
  static MS_INLINE Vec minus_2u(Vec x, Vec square) {
    return x * fma(broadcast(-0.10294324F), square, broadcast(-2.3022082F));
  }
  template <class T>
  static MS_INLINE Vec value(Vec x) {
    return x * logistic2<T>(minus_2u(x, x * x));
  }
  template <class T>
  static MS_INLINE Tangent tangent(Vec d, Vec x) {
    const Vec square = x * x;
    const Logistic s = logistic2_and_rest<T>(minus_2u(x, square));
    const Vec du = fma(broadcast(0.21406444F), square, broadcast(1.5957691F));
    // s (1 - s) x du: for large |x|, s (1 - s) is 0 before x^3 overflows.
    const Vec ds = d * s.value;
    return {ds * x, fma(ds * s.rest * x, min(du, broadcast(1e30F)), ds)};
  }
};

struct FastGelu {
  static MS_INLINE Vec minus_u(Vec x) { return broadcast(-2.4554670F) * x; }  // -1.702 x / ln(2)
  template <class T>
  static MS_INLINE Vec value(Vec x) {
    return x * logistic2<T>(minus_u(x));
  }
  template <class T>
  static MS_INLINE Tangent tangent(Vec d, Vec x) {
    const Logistic s = logistic2_and_rest<T>(minus_u(x));
    const Vec ds = d * s.value, y = ds * x;
    return {y, fma(broadcast(1.702F) * y, s.rest, ds)};
  }
};

struct Relu {
  template <class>
  static MS_INLINE Vec value(Vec x) {
    return select_less(x, zero(), zero(), x);  // NaN is kept
  }
  template <class>
  static MS_INLINE Tangent tangent(Vec d, Vec x) {
    return {d * value<void>(x), d * select_less(zero(), x, broadcast(1.0F), zero())};
  }
};

struct SquaredRelu {
  template <class>
  static MS_INLINE Vec value(Vec x) {
    const Vec r = Relu::value<void>(x);
    return r * r;
  }
  template <class>
  static MS_INLINE Tangent tangent(Vec d, Vec x) {
    const Vec r = Relu::value<void>(x), dr = d * r;
    return {dr * r, dr + dr};
  }
};

// Phi(-|x|) is e^(-x^2 / 2) times a smooth function (half of erfcx), here a polynomial in t = 1 / (1 + 0.35 |x|) with
// relative error below 2e-7 as long as the product is a normal number.
struct Gelu {
  // density: e^(-x^2 / 2)
  static MS_INLINE Vec normal_cdf(Vec x, Vec density) {
    const Vec one = broadcast(1.0F), t = one / fma(broadcast(0.35F), max(x, zero() - x), one);
    Vec p = broadcast(-0.02914590574800968F);
    p = fma(p, t, broadcast(0.14397159218788147F));
    p = fma(p, t, broadcast(-0.2557140290737152F));
    p = fma(p, t, broadcast(0.15917393565177917F));
    p = fma(p, t, broadcast(-0.023109687492251396F));
    p = fma(p, t, broadcast(0.10550794750452042F));
    p = fma(p, t, broadcast(0.11983288079500198F));
    p = fma(p, t, broadcast(0.13986186683177948F));
    p = fma(p, t, broadcast(0.13962140679359436F));
    const Vec beyond = p * t * density;
    return select_less(x, zero(), beyond, one - beyond);
  }
  static MS_INLINE Vec density(Vec x) { return exp(broadcast(-0.5F) * x * x); }
  template <class>
  static MS_INLINE Vec value(Vec x) {
    return x * normal_cdf(x, density(x));
  }
  template <class>
  static MS_INLINE Tangent tangent(Vec d, Vec x) {
    const Vec e = density(x), cdf = normal_cdf(x, e), near = max(min(broadcast(1e4F), x), broadcast(-1e4F));
    return {d * (x * cdf), d * fma(broadcast(0.39894228F) * near, e, cdf)};
  }
};
