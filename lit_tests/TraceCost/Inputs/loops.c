void **chase(void **p, long n) {
  do
    p = *p;
  while (--n);
  return p;
}
long gather(long *a, long n) {
  long last;
  do
    last = *(volatile long *)(a += 8);
  while (--n);
  return last;
}
char *search(char *p) {
  do
    p += 64;
  while (*p);
  return p;
}
