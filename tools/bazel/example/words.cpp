// Counts words; small, and inlined differently by the policy for size.
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

class Counter {
public:
  void read(std::istream &in) {
    std::string line;
    while (std::getline(in, line))
      add(line);
  }
  void add(const std::string &line) {
    std::istringstream words(line);
    std::string word;
    while (words >> word) {
      ++counts[normalised(word)];
      order.push_back(word);
    }
  }
  std::vector<std::string> seen(unsigned least) const {
    std::vector<std::string> found;
    for (const auto &[word, count] : counts)
      if (count >= least)
        found.push_back(word + ": " + std::to_string(count));
    return found;
  }
  const std::vector<std::string> &all() const { return order; }

private:
  static std::string normalised(const std::string &word) {
    std::string result;
    for (char c : word)
      if (c >= 'A' && c <= 'Z')
        result += static_cast<char>(c - 'A' + 'a');
      else if (c >= 'a' && c <= 'z')
        result += c;
    return result;
  }
  std::map<std::string, unsigned> counts;
  std::vector<std::string> order;
};

int main() {
  Counter counter;
  counter.read(std::cin);
  for (const std::string &line : counter.seen(2))
    std::cout << line << '\n';
  std::cout << counter.all().size() << " words\n";
}
