// Kafka's server-side assignors, without a broker: `java Assign.java` reads groups from standard input, one fact per line
// with tabs between the fields, and prints one line for each run: the members' partitions, in the order of the members.
//
//   T  TOPIC PARTITIONS                                   a topic: its id in base 64, and its number of partitions
//   M  MEMBER INSTANCE TOPICS TARGET                      a member: "-" is no instance; TOPICS are ids with commas between
//                                                         them; TARGET are topic:partition with commas between them
//   R  ASSIGNOR TYPE ORDER                                run the assignor; TYPE is Kafka's SubscriptionType; ORDER is
//                                                         `sorted` (maps by id) or `hashed` (as in Kafka's coordinator)
//   N                                                     forget the topics and members

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

public class Assign {
    static final Map<String, ConsumerGroupPartitionAssignor> ASSIGNORS =
        Map.of("range", new RangeAssignor(), "uniform", new UniformAssignor());

    record Member(String id, Optional<String> instance, List<Uuid> topics, Map<Uuid, List<Integer>> target) {
        static Member of(String[] part) {
            List<Uuid> topics = new ArrayList<>();
            for (String topic : items(part, 3)) topics.add(Uuid.fromString(topic));
            Map<Uuid, List<Integer>> target = new TreeMap<>();
            for (String partition : items(part, 4)) {
                String[] both = partition.split(":");
                target.computeIfAbsent(Uuid.fromString(both[0]), topic -> new ArrayList<>()).add(Integer.parseInt(both[1]));
            }
            Optional<String> instance = part[2].equals("-") ? Optional.empty() : Optional.of(part[2]);
            return new Member(part[1], instance, topics, target);
        }

        MemberSubscriptionAndAssignmentImpl described(boolean isSorted) {
            Map<Uuid, Set<Integer>> held = isSorted ? new TreeMap<>() : new HashMap<>();
            target.forEach((topic, partitions) -> held.put(topic, collected(partitions, isSorted)));
            return new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), instance, collected(topics, isSorted), new Assignment(held));
        }
    }

    record Topics(Map<Uuid, Integer> partitions) implements SubscribedTopicDescriber {
        @Override public int numPartitions(Uuid topic) { return partitions.getOrDefault(topic, -1); }
        @Override public Set<String> racksForPartition(Uuid topic, int partition) { return Set.of(); }
    }

    static String[] items(String[] part, int index) {
        return part.length > index && !part[index].isEmpty() ? part[index].split(",") : new String[0];
    }

    static <T extends Comparable<T>> Set<T> collected(List<T> items, boolean isSorted) {
        return isSorted ? new TreeSet<>(items) : new HashSet<>(items);
    }

    static String run(String[] part, List<Member> members, Map<Uuid, Integer> topics) {
        boolean isSorted = part[3].equals("sorted");
        Map<String, MemberSubscriptionAndAssignmentImpl> described = isSorted ? new TreeMap<>() : new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        for (Member member : members) {
            described.put(member.id, member.described(isSorted));
            member.target.forEach((topic, partitions) -> partitions.forEach(
                partition -> owners.computeIfAbsent(topic, each -> new HashMap<>()).put(partition, member.id)));
        }
        GroupSpecImpl group = new GroupSpecImpl(described, SubscriptionType.valueOf(part[2]), owners);
        GroupAssignment assigned = ASSIGNORS.get(part[1]).assign(group, new Topics(topics));
        List<String> lines = new ArrayList<>();
        for (Member member : members) {
            List<String> partitions = new ArrayList<>();
            if (assigned.members().containsKey(member.id)) {
                assigned.members().get(member.id).partitions().forEach(
                    (topic, numbers) -> numbers.forEach(number -> partitions.add(topic + ":" + number)));
            }
            lines.add(String.join(",", partitions));
        }
        return String.join("\t", lines);
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        Map<Uuid, Integer> topics = new HashMap<>();
        List<Member> members = new ArrayList<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] part = line.split("\t");
            switch (part[0]) {
                case "N" -> { topics = new HashMap<>(); members = new ArrayList<>(); }
                case "T" -> topics.put(Uuid.fromString(part[1]), Integer.parseInt(part[2]));
                case "M" -> members.add(Member.of(part));
                default -> out.println(run(part, members, topics));
            }
        }
        out.flush();
    }
}
