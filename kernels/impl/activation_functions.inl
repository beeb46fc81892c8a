// The functions behind activation.h, lane by lane.

// An activation: its value and its derivative at x, for results of type T.
struct Silu {
  template <class T>
  static MS_INLINE Vec value(Vec x) {
    return x * logistic<T>(x).value;
  }
  template <class T>
  static MS_INLINE Vec slope(Vec x) {
    const Logistic s = logistic<T>(x);
    return fma(x * s.value, s.rest, s.value);
  }
};

// 0.5 (1 + tanh(u)) is sigmoid(2u), which keeps its digits where the sum would cancel.
struct GeluTanh {
  // -2u in powers of 2: -2 / ln(2) sqrt(2 / pi) (x + 0.044715 x^3).
  template <class T>
  static MS_INLINE Logistic phi(Vec x, Vec square) {
    return logistic2<T>(x * fma(broadcast(-0.10294324F), square, broadcast(-2.3022082F)));
  }
  template <class T>
  static MS_INLINE Vec value(Vec x) {
    return x * phi<T>(x, x * x).value;
  }
  template <class T>
  static MS_INLINE Vec slope(Vec x) {
    const Vec square = x * x;
    const Logistic s = phi<T>(x, square);
    const Vec du = fma(broadcast(0.21406444F), square, broadcast(1.5957691F));
    // s (1 - s) x du: far out s (1 - s) is 0 before x^3 overflows.
    return fma(s.value * s.rest * x, min(du, broadcast(1e30F)), s.value);
  }
};

struct FastGelu {
  template <class T>
  static MS_INLINE Vec value(Vec x) {
    return x * logistic<T>(broadcast(1.702F) * x).value;
  }
  template <class T>
  static MS_INLINE Vec slope(Vec x) {
    const Vec u = broadcast(1.702F) * x;
    const Logistic s = logistic<T>(u);
    return fma(u * s.value, s.rest, s.value);
  }
};

struct Relu {
  template <class>
  static MS_INLINE Vec value(Vec x) {
    return select_less(x, zero(), zero(), x);  // NaN stays
  }
  template <class>
  static MS_INLINE Vec slope(Vec x) {
    return select_less(zero(), x, broadcast(1.0F), zero());
  }
};

// Phi(-|x|) is e^(-x^2 / 2) times a smooth function (half of erfcx), here a polynomial in t = 1 / (1 + 0.35 |x|) whose
// relative error is below 2e-7 as far out as the product is a normal number.
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
  static MS_INLINE Vec slope(Vec x) {
    const Vec e = density(x), near = max(min(broadcast(1e4F), x), broadcast(-1e4F));
    return fma(broadcast(0.39894228F) * near, e, normal_cdf(x, e));
  }
};
