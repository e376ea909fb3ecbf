// MirrorMaker 2's RemoteClusterUtils: `java Translate.java HOST:PORT SOURCE GROUP` asks the cluster at that address for the
// offsets of a group of the cluster SOURCE, as they are translated, and prints {"topic-partition": offset} as JSON.

import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

public class Translate {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0]);
        Map<TopicPartition, OffsetAndMetadata> found =
            RemoteClusterUtils.translateOffsets(settings, arguments[1], arguments[2], Duration.ofSeconds(30));
        Map<String, Long> offsets = new TreeMap<>();
        found.forEach((partition, offset) -> offsets.put(partition.toString(), offset.offset()));
        System.out.println(offsets.entrySet().stream()
            .map(each -> "\"" + each.getKey() + "\": " + each.getValue())
            .collect(Collectors.joining(", ", "{", "}")));
    }
}
