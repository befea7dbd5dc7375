#include <boost/test/unit_test.hpp>

#include "../../src/runtime/watch/link.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::watch;

namespace {

constexpr std::size_t largest = 1 << 20;
const Bytes32 one_key{1};
const Bytes32 other_key{2};

std::array<Descriptor, 2> connection() {
  std::array<int, 2> ends{};
  BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

std::pair<Link, Link> connected() {
  auto [left, right] = connection();
  return {Link(std::move(left), largest), Link(std::move(right), largest)};
}

std::vector<std::string> received_by(Link& link) {
  std::vector<std::string> all;
  while (const auto message = link.receive()) all.push_back(message->payload);
  return all;
}

/// The bytes that `link` sends.
std::string sent_by(Link& link, const Descriptor& other_end) {
  link.flush();
  std::string bytes(4096, '\0');
  const ssize_t count = ::recv(other_end.get(), bytes.data(), bytes.size(), 0);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  return bytes;
}

void write(const Descriptor& to, const std::string& bytes) {
  BOOST_REQUIRE(::send(to.get(), bytes.data(), bytes.size(), 0) ==
                static_cast<ssize_t>(bytes.size()));
}

}  // namespace

BOOST_AUTO_TEST_CASE(messages_of_any_size_arrive_complete_and_in_order) {
  for (const bool authenticated : {false, true}) {
    auto [left, right] = connected();
    if (authenticated) {
      left.authenticate({.outgoing = one_key, .incoming = other_key}, largest);
      right.authenticate({.outgoing = other_key, .incoming = one_key}, largest);
    }
    const std::vector<std::string> sent{"", "a", std::string(300000, 'x'), "end"};
    for (const std::string& text : sent) left.send(MessageKind::loss, text);

    std::vector<std::string> received;
    for (int i = 0; i < 1000 && received.size() < sent.size(); ++i) {
      left.flush();
      for (std::string& payload : received_by(right)) received.push_back(std::move(payload));
    }

    BOOST_TEST((received == sent));
    BOOST_TEST(right.valid());
  }
}

BOOST_AUTO_TEST_CASE(messages_sent_before_the_end_are_still_received) {
  auto [left, right] = connected();
  left.send(MessageKind::goodbye);
  left.close();

  BOOST_TEST(received_by(right).size() == 1U);
  BOOST_TEST(!right.valid());
  BOOST_TEST(right.reason() == "the other side closed it");
}

BOOST_AUTO_TEST_CASE(nothing_remains_to_be_sent_to_a_closed_peer) {
  auto [left, right] = connected();
  right.send(MessageKind::goodbye);
  right.close();

  left.send(MessageKind::loss, std::string(300000, 'x'));

  BOOST_TEST(!left.has_more_to_send());
  BOOST_TEST(received_by(left).size() == 1U);
  BOOST_TEST(!left.valid());
}

BOOST_AUTO_TEST_CASE(a_message_above_the_size_limit_ends_the_connection) {
  auto [near, far] = connection();
  Link link(std::move(near), 8);
  write(far, std::string({9, 0, 0, 0}));
  write(far, "l");

  BOOST_TEST(received_by(link).empty());
  BOOST_TEST(!link.valid());
}

BOOST_AUTO_TEST_CASE(a_modified_replayed_or_reordered_message_ends_the_connection) {
  for (const std::string change : {"none", "contents", "kind", "repeated", "later", "unsigned"}) {
    auto [near, wire_in] = connection();
    auto [wire_out, far] = connection();
    Link sender(std::move(near), largest);
    Link receiver(std::move(far), largest);
    if (change != "unsigned") {
      sender.authenticate({.outgoing = one_key, .incoming = other_key}, largest);
    }
    receiver.authenticate({.outgoing = other_key, .incoming = one_key}, largest);
    sender.send(MessageKind::reports, "first");
    std::string bytes = sent_by(sender, wire_in);
    if (change == "unsigned") bytes += std::string(32, 'x');
    if (change == "contents") bytes[5] = 'F';
    if (change == "kind") bytes[4] = static_cast<char>(MessageKind::loss);
    if (change == "repeated") bytes += bytes;
    if (change == "later") {
      sender.send(MessageKind::reports, "second");
      bytes = sent_by(sender, wire_in);
    }
    write(wire_out, bytes);

    const auto received = received_by(receiver);

    const bool first_is_sound = change == "none" || change == "repeated";
    BOOST_TEST(received.size() == (first_is_sound ? 1U : 0U), change);
    BOOST_TEST(receiver.valid() == (change == "none"), change);
  }
}

BOOST_AUTO_TEST_CASE(a_proof_is_valid_for_one_purpose_and_one_session) {
  const Session session{.child = 3, .parent = 1, .child_nonce = {5}, .parent_nonce = {6}};
  Session other_nonce = session;
  other_nonce.parent_nonce = {7};
  Session other_child = session;
  other_child.child = 4;
  const Bytes32 proof = derive(one_key, Purpose::child_proof, session);

  BOOST_TEST(equal(proof, derive(one_key, Purpose::child_proof, session)));
  BOOST_TEST(!equal(proof, derive(one_key, Purpose::parent_proof, session)));
  BOOST_TEST(!equal(proof, derive(one_key, Purpose::child_proof, other_nonce)));
  BOOST_TEST(!equal(proof, derive(one_key, Purpose::child_proof, other_child)));
  BOOST_TEST(!equal(proof, derive(other_key, Purpose::child_proof, session)));
  BOOST_TEST(!equal(random_bytes(), random_bytes()));
}

BOOST_AUTO_TEST_CASE(hmac_gives_the_test_vector_of_the_standard) {
  // RFC 4231, test case 2. Its key is padded with zeros here, as HMAC does itself.
  const Bytes32 key{'J', 'e', 'f', 'e'};
  const Bytes32 expected{0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24,
                         0x26, 0x08, 0x95, 0x75, 0xc7, 0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27,
                         0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43};

  BOOST_TEST(equal(hmac(key, "what do ya want for nothing?"), expected));
}

BOOST_AUTO_TEST_CASE(malformed_payloads_give_no_reports) {
  BOOST_TEST(reports_in("").empty());
  BOOST_TEST(reports_in(std::string(sizeof(RankReport) + 1, 'x')).empty());
  std::vector<RankReport> two(2);
  two[1].rank = 4;
  BOOST_TEST(reports_in(std::string(bytes_of(two))).at(1).rank == 4);
  BOOST_TEST(rank_text_in("ab").rank == -1);
  BOOST_TEST(rank_text_in(to_payload({.rank = 3, .text = "gone"})).text == "gone");
}
