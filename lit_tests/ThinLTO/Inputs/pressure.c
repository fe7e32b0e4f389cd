/* More values are alive at once than there are registers. */
double pressure(const double *a, long n) {
  double s[24] = {0};
  for (long i = 0; i < n; ++i)
#pragma clang loop unroll(full)
    for (int k = 0; k < 24; ++k)
      s[k] += a[i * 24 + k] * s[(k + 5) % 24];
  double t = 0;
  for (int k = 0; k < 24; ++k)
    t += s[k] * a[k];
  return t;
}
